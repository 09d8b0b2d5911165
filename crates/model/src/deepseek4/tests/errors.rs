//! What a file can get wrong, and what it may leave out.

use super::portable::Values;
use super::*;
use crate::KvLayout;
use andante_gguf::{Array, Format, Value};

fn without(key: &str) -> Vec<u8> {
    let mut file = portable::File::new();
    file.remove(key);
    file.bytes(Format::F32)
}

fn with(key: &str, value: &Value) -> Vec<u8> {
    let mut file = portable::File::new();
    file.set(key, value.clone());
    file.bytes(Format::F32)
}

#[test]
fn keys_that_only_some_files_have_may_be_missing() {
    let (tokens, blocks) = (portable::ids(40), table(2, 0));
    let sequence = Sequence {
        tokens: &tokens,
        table: &blocks,
        state: 0,
    };
    let logits = |bytes| sequence.run(&mut reserved(try_load(bytes, exact(2)).unwrap()), 0, &[40]);
    let expected = logits(portable::gguf());
    for key in [
        "vocab_size",
        "expert_gating_func",
        "swiglu_clamp_shexp",
        "embedding_length_out",
        "expert_weights_norm",
        "attention.head_count_kv",
        "expert_shared_count",
    ] {
        assert_bits(key, &logits(without(key)), &expected);
    }
    let one = Value::F32(2.0);
    assert_bits(
        "one clamp",
        &logits(with("swiglu_clamp_exp", &one)),
        &expected,
    );
}

#[test]
fn missing_and_odd_keys_are_named() {
    let error = |key: &str, bytes| {
        let error = try_load(bytes, exact(1)).err().expect(key).to_string();
        assert!(
            error.contains(&format!("deepseek4.{key}")),
            "{key}: {error}"
        );
    };
    for key in [
        "block_count",
        "context_length",
        "embedding_length",
        "attention.head_count",
        "attention.key_length",
        "rope.dimension_count",
        "attention.q_lora_rank",
        "attention.sliding_window",
        "expert_count",
        "expert_used_count",
        "expert_feed_forward_length",
        "attention.indexer.head_count",
        "attention.indexer.key_length",
        "attention.indexer.top_k",
        "attention.output_group_count",
        "attention.output_lora_rank",
        "hyper_connection.count",
        "hyper_connection.sinkhorn_iterations",
        "attention.layer_norm_rms_epsilon",
        "expert_weights_scale",
        "attention.compress_rope_freq_base",
        "hyper_connection.epsilon",
        "swiglu_clamp_exp",
        "attention.compress_ratios",
    ] {
        error(key, without(key));
    }
    let ratios = |ratios: &[i32]| Value::Array(Array::I32(ratios.to_vec()));
    for (key, value) in [
        ("vocab_size", Value::U32(511)),
        ("embedding_length_out", Value::U32(512)),
        ("attention.head_count_kv", Value::U32(2)),
        ("attention.value_length", Value::U32(64)),
        ("attention.output_group_count", Value::U32(3)),
        ("rope.dimension_count", Value::U32(63)),
        ("rope.dimension_count", Value::U32(256)),
        ("expert_gating_func", Value::U32(2)),
        ("expert_used_count", Value::U32(5)),
        ("hyper_connection.count", Value::U32(17)),
        ("hyper_connection.sinkhorn_iterations", Value::U32(0)),
        ("attention.compress_ratios", ratios(&[0, 4, 128])),
        ("attention.compress_ratios", ratios(&[0, 4, 129, 4, 128])),
        ("attention.compress_ratios", ratios(&[0, 4, -1, 4, 128])),
        ("swiglu_clamp_exp", Value::Array(Array::F32(vec![2.0; 4]))),
        ("swiglu_clamp_shexp", Value::F32(-1.0)),
        ("rope.scaling.type", "longrope".into()),
        ("rope.scaling.factor", Value::F32(0.5)),
    ] {
        error(key, with(key, &value));
    }
}

/// Bytes of the metadata and the tensor directory changed at random: such a file is refused or computes something.
#[test]
fn damaged_files_do_not_panic() {
    let bytes = portable::gguf();
    let first = b"blk.0.attn_norm.weight";
    let directory = bytes.windows(first.len()).position(|part| part == first);
    // The keys, and the first of the tensors.
    let head = directory.expect("a directory") + 2048;
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let (mut loaded, mut refused) = (0, 0);
    for _ in 0..120 {
        let mut bytes = bytes.clone();
        for _ in 0..=random(2) {
            bytes[random(head)] = [0, 1, 2, 0x7f, 0x80, 0xff, random(256) as u8][random(7)];
        }
        let Ok(mut model) = try_load(bytes, exact(1)) else {
            refused += 1;
            continue;
        };
        let limits = Limits {
            blocks: 1,
            batch_tokens: 8,
            logit_rows: 8,
            state_rows: 0,
            running_states: 1,
        };
        if model.reserve(limits).is_ok() {
            let sequence = Sequence {
                tokens: &portable::ids(8),
                table: &[0],
                state: 0,
            };
            sequence.run(&mut model, 0, &[8]);
            loaded += 1;
        }
    }
    assert!(
        loaded > 5 && refused > 5,
        "{loaded} loaded, {refused} refused"
    );
}

#[test]
fn facts_are_those_of_the_file() {
    let model = try_load(portable::gguf(), exact(1)).unwrap();
    let info = model.info();
    assert_eq!((info.vocab, info.hidden, info.layers), (512, 256, 5));
    assert_eq!((info.heads, info.kv_heads, info.head_dim), (4, 1, 128));
    assert_eq!(info.windows, [Some(32), None, None, None, None]);
    // For 128 tokens, two layers with 32 rows of 128 and as many index rows, two with one row.
    let block = 2 * 32 * 256 + 2 * 128;
    // Five windows; two layers of 8 tokens, keys and gates of both series, for attention and index; two of 128 tokens.
    let (windows, tokens) = (5 * 32 * 128, 2 * 8 * 2 * (256 + 256) + 2 * 128 * 2 * 128);
    let layout = |block_bytes, state_bytes| KvLayout {
        block_tokens: BLOCK as u32,
        block_bytes,
        state_bytes,
    };
    let (exact, half) = (
        layout(4 * block, 4 * (windows + tokens)),
        layout(2 * block, 2 * windows + 4 * tokens),
    );
    // Of a key 64 bytes and a scale, as many values of 2 bytes; of an index row 4 bits and four scales.
    let compact = layout(2 * 32 * (200 + 68) + 2 * 200, 5 * 32 * 200 + 4 * tokens);
    assert_eq!(model.kv_layout(), exact);
    let file = GgufFile::from_bytes(portable::gguf()).unwrap();
    let outline = crate::outline(&file).unwrap();
    let kinds: Vec<_> = outline.layers.iter().map(|(_, count)| *count).collect();
    assert_eq!(kinds, [1, 2, 2]);
    assert!(
        outline.layers[1]
            .0
            .contains("the best 8 of the rows of 4 tokens")
    );
    assert_eq!(outline.kv, [("f16", half), ("q8_0", compact)]);
    assert_eq!(outline.context, 16384);
    // All of the file's F32 but the rows of tables that are not its own, and two of four experts.
    let all: u64 = file.tensors().map(|tensor| tensor.data.len() as u64).sum();
    let apes = 2 * 2 * 3 * 4 * 256 + 2 * 127 * 4 * 128;
    let unread = 511 * (4 * 256 + 4 * 2) + apes + 5 * 2 * 3 * 4 * 256 * 256;
    assert_eq!(outline.token_bytes, all - unread);
    for (kv_type, layout) in [(KvType::F16, half), (KvType::Q8_0, compact)] {
        let config = CpuConfig {
            kv_type,
            ..CpuConfig::default()
        };
        let model = try_load(portable::gguf(), config).unwrap();
        assert_eq!(model.kv_layout(), layout);
    }
}

#[test]
fn odd_tensors_are_named() {
    let error = |name: &str, change: &dyn Fn(&mut portable::File)| {
        let mut file = portable::File::new();
        change(&mut file);
        let error = try_load(file.bytes(Format::F32), exact(1))
            .err()
            .expect(name);
        let error = error.to_string();
        assert!(error.contains(&format!("`{name}`")), "{name}: {error}");
    };
    let table = "blk.0.ffn_gate_tid2eid.weight";
    for id in [-1, 4] {
        error(table, &|file| {
            let mut tensors = file.tensors.iter_mut();
            let entry = tensors.find(|entry| entry.name == table);
            entry.expect("a table").values = Values::Ids(vec![id; 1024]);
        });
    }
    error(table, &|file| {
        let mut tensors = file.tensors.iter_mut();
        let entry = tensors.find(|entry| entry.name == table);
        entry.expect("a table").values = Values::Floats(vec![0.0; 1024]);
    });
    for name in [
        "blk.1.indexer.proj.weight",
        "output_hc_scale.weight",
        "blk.4.attn_compressor_ape.weight",
    ] {
        error(name, &|file| {
            file.tensors.retain(|entry| entry.name != name);
        });
        error(name, &|file| {
            let mut tensors = file.tensors.iter_mut();
            let entry = tensors.find(|entry| entry.name == name).expect("a tensor");
            let last = entry.shape.last_mut().expect("no scalar");
            *last *= 2;
            if let Values::Floats(values) = &mut entry.values {
                values.extend_from_within(..);
            }
        });
    }
    // A layer without compressor has no place for one.
    error("blk.0.attn_compressor_norm.weight", &|file| {
        file.tensors.push(portable::Entry {
            name: "blk.0.attn_compressor_norm.weight".to_owned(),
            shape: vec![128],
            values: Values::Floats(vec![1.0; 128]),
        });
    });
}
