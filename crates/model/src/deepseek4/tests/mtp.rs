//! The block that predicts one token further, in both forms that files have, against the reference's logits.

use andante_compute::Backend;
use andante_gguf::{Format, Tensor, Value};
use sha2::{Digest, Sha256};

use super::portable::{File, HIDDEN, LAYERS, VOCAB};
use super::quantised::POSITIONS;
use super::*;
use crate::deepseek4::layout::Layout;
use crate::deepseek4::load::Weights;
use crate::deepseek4::mtp::Mtp;
use crate::deepseek4::pass::{Memory, Pass};

/// `[positions, vocab]`, of a prompt of 160 tokens.
const LOGITS: &[u8] = include_bytes!("logits_mtp.f32");

#[test]
fn its_file_is_the_references() {
    let digest = Sha256::digest(File::with_mtp().bytes(Format::F32));
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hash,
        "4c35b7026f874e047a64ac4bd6a551eccbc6ad0eef1c1ae1f44a16c4f9acd01f"
    );
}

#[test]
fn logits_of_the_token_after_the_next_are_the_references() {
    for (what, file) in [
        ("ds4's", File::with_mtp()),
        ("llama.cpp's", File::with_mtp_as_layer()),
    ] {
        let mut model = reserved(try_load(file.bytes(Format::F32), exact(2)).unwrap());
        let tokens = portable::ids(160);
        let sequence = Sequence {
            tokens: &tokens,
            table: &[0, 1],
            state: 0,
        };
        model.trace = Some(Trace::default());
        sequence.run(&mut model, 0, &[160]);
        let streams = model.trace.take().unwrap().streams.remove(&(LAYERS - 1));
        let all = predict(model, &streams.unwrap(), &tokens[1..]);
        let vocab = VOCAB as usize;
        let found: Vec<f32> = POSITIONS
            .iter()
            .flat_map(|at| &all[at * vocab..][..vocab])
            .copied()
            .collect();
        assert_close(what, &found, &floats(LOGITS), reference::TOLERANCE);
    }
}

/// The model's own logits do not change, and its outline does not count what no token reads.
#[test]
fn a_file_with_the_block_is_served_as_without() {
    let tokens = portable::ids(40);
    let sequence = Sequence {
        tokens: &tokens,
        table: &[0],
        state: 0,
    };
    let expected = sequence.run(&mut model(exact(2)), 0, &[40]);
    let outline = |bytes| crate::outline(&GgufFile::from_bytes(bytes).unwrap()).unwrap();
    let plain = outline(portable::gguf());
    let bytes = File::with_mtp().bytes(Format::F32);
    let mut with = reserved(try_load(bytes.clone(), exact(2)).unwrap());
    assert_bits("ds4's", &sequence.run(&mut with, 0, &[40]), &expected);
    assert_eq!(outline(bytes), plain);
    let bytes = File::with_mtp_as_layer().bytes(Format::F32);
    assert_eq!(outline(bytes), plain);
    // Some files say that there is one and have none.
    let mut file = File::new();
    file.set("nextn_predict_layers", Value::U32(1));
    let mut without = reserved(try_load(file.bytes(Format::F32), exact(2)).unwrap());
    assert_bits("none", &sequence.run(&mut without, 0, &[40]), &expected);
}

#[test]
fn what_is_odd_about_it_is_named() {
    let refused = |name: &str, file: File| {
        let error = try_load(file.bytes(Format::F32), exact(1)).err();
        let error = error.expect(name).to_string();
        assert!(error.contains(name), "{name}: {error}");
    };
    for name in [
        "mtp.0.enorm.weight",
        "mtp.0.attn_kv.weight",
        "mtp.0.h_proj.weight",
    ] {
        let mut file = File::with_mtp();
        file.take(name);
        refused(name, file);
    }
    let mut file = File::with_mtp();
    file.take("mtp.0.e_proj.weight");
    // Then nothing says what the others are.
    refused("mtp.0.", file);
    for (taken, named) in [
        ("blk.5.nextn.hnorm.weight", "blk.5.hnorm.weight"),
        ("blk.5.ffn_up_exps.weight", "blk.5.ffn_up_exps.weight"),
    ] {
        let mut file = File::with_mtp_as_layer();
        file.take(taken);
        refused(named, file);
    }
    let mut file = File::with_mtp_as_layer();
    file.set("nextn_predict_layers", Value::U32(2));
    refused("blk.5.", file);
    let mut file = File::with_mtp_as_layer();
    let eh = file.take("blk.5.nextn.eh_proj.weight");
    file.tensors.push(portable::Entry {
        name: "blk.4.nextn.eh_proj.weight".to_owned(),
        ..eh
    });
    file.set("nextn_predict_layers", Value::U32(2));
    refused("nextn_predict_layers", file);
}

/// Logits of the token after `next[r]`, from the streams that the token before it left behind the last layer.
fn predict(model: Portable, streams: &[f32], next: &[u32]) -> Vec<f32> {
    let Deepseek4 {
        mut spec,
        weights,
        mut backend,
        mtp,
        ..
    } = model;
    let Mtp {
        token_norm,
        token,
        stream_norm,
        streams: stream_matrix,
        block,
        head,
        norm,
    } = mtp.expect("a block");
    let weights = Weights {
        layers: vec![block],
        head: head.unwrap_or(weights.head),
        output_norm: norm.unwrap_or(weights.output_norm),
        ..weights
    };
    spec.layers = vec![spec.mtp.take().expect("a block").layer];
    let layout = Layout::new(&spec, |row, width| Ops::kept(&backend, row, width));
    let n = next.len();
    let limits = Limits {
        blocks: 2,
        batch_tokens: n as u32,
        logit_rows: n as u32,
        state_rows: 0,
        running_states: 1,
    };
    let mut memory = Memory::new(&mut backend, &spec, &layout, limits).unwrap();
    let mut batch = Batch::default();
    batch.push_sequence(next, 0, &[0, 1], BLOCK as u32, Wanted::All);
    batch.states.push(0);

    let (hidden, eps) = (HIDDEN as usize, spec.eps);
    let mut embedded = backend.buffer(n, hidden).unwrap();
    let mut projected = backend.buffer(n, hidden).unwrap();
    backend.embed(&mut embedded, &weights.embedding, next, 1.0);
    backend.rms_norm_heads(&mut embedded, &token_norm, eps, n);
    backend.matmul(&mut [(&token, &mut projected)], &embedded, n);
    backend.repeat(&mut memory.x, &projected, n);

    let wide = 4 * hidden;
    let bytes: Vec<u8> = streams.iter().flat_map(|x| x.to_le_bytes()).collect();
    let shape = [wide as u64, (streams.len() / wide) as u64];
    let table = Tensor::new("streams", &shape, Format::F32, &bytes);
    let table = backend.weight(&table).unwrap();
    let mut before = backend.buffer(n, wide).unwrap();
    let mut projected = backend.buffer(n, wide).unwrap();
    let rows: Vec<u32> = (0..n as u32).collect();
    backend.embed(&mut before, &table, &rows, 1.0);
    backend.rms_norm_heads(&mut before, &stream_norm, eps, n);
    backend.grouped_matmul(&mut projected, &stream_matrix, &before, n);
    backend.add(&mut memory.x, &projected, n);

    Pass {
        backend: &mut backend,
        spec: &spec,
        layout: &layout,
        weights: &weights,
        batch: &batch,
        wanted_rows: &rows,
        trace: None,
    }
    .layers(&mut memory);
    backend.read(&memory.logits, n).unwrap().to_vec()
}
