//! What a model file can get wrong, and what a good one says about itself.

use crate::fixture::{self, Tiny};
use andante_compute::CpuBackend;
use andante_gguf::{Format, GgufFile};
use andante_model::{Limits, Model, ModelError, known_architectures, load};
use serde_json::json;

fn try_load(tiny: &Tiny) -> Result<Box<dyn Model>, ModelError> {
    let backend = CpuBackend::new(fixture::reference()).unwrap();
    load(&tiny.gguf(Format::F32), backend, &mut |_, _| {})
}

fn error_of(tiny: &Tiny) -> String {
    match try_load(tiny) {
        Ok(_) => panic!("loaded"),
        Err(error) => error.to_string(),
    }
}

/// `llama2` with one metadata value changed, or removed by `null`.
fn with(key: &str, value: serde_json::Value) -> Tiny {
    let mut tiny = Tiny::named("llama2");
    tiny.metadata.insert(key.to_owned(), value);
    tiny.metadata.retain(|_, value| !value.is_null());
    tiny
}

#[test]
fn info_and_layout_come_from_the_file() {
    let tiny = Tiny::named("gemma3");
    let model = try_load(&tiny).unwrap();
    let info = model.info();
    assert_eq!(
        (info.architecture.as_str(), info.name.as_deref()),
        ("gemma3", Some("gemma3"))
    );
    assert_eq!(
        (info.vocab, info.context, info.layers, info.hidden),
        (96, 256, 7, 64)
    );
    assert_eq!((info.heads, info.kv_heads, info.head_dim), (4, 1, 32));
    let attention = 64 * 128 + 2 * 64 * 32 + 128 * 64 + 2 * 32;
    let parameters = 96 * 64 + 7 * (attention + 3 * 64 * 96 + 4 * 64) + 64;
    assert_eq!(
        (info.parameters, info.weight_bytes),
        (parameters, 4 * parameters)
    );
    let layout = model.kv_layout();
    let values = 7 * 2 * 32 * u64::from(layout.block_tokens);
    assert_eq!((layout.block_bytes, layout.state_bytes), (4 * values, 0));
}

#[test]
fn progress_ends_at_the_total() {
    let file = Tiny::named("llama3").gguf(Format::F32);
    let mut seen = Vec::new();
    let backend = CpuBackend::new(fixture::reference()).unwrap();
    load(&file, backend, &mut |done, total| seen.push((done, total))).unwrap();
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0));
    let &(done, total) = seen.last().unwrap();
    assert_eq!(done, total);
}

#[test]
fn an_unknown_architecture_is_named_with_the_known_ones() {
    let error = error_of(&with("general.architecture", json!("mamba9")));
    assert!(error.contains("`mamba9`"), "{error}");
    for known in known_architectures() {
        assert!(error.contains(known), "{error}");
    }
}

#[test]
fn bad_metadata_is_named() {
    let cases = [
        ("llama.block_count", json!(null)),
        ("llama.block_count", json!(0)),
        ("llama.block_count", json!("three")),
        ("llama.embedding_length", json!(null)),
        ("llama.feed_forward_length", json!(null)),
        ("llama.context_length", json!(null)),
        ("llama.attention.head_count", json!(5)),
        ("llama.attention.head_count_kv", json!(3)),
        ("llama.attention.layer_norm_rms_epsilon", json!(null)),
        ("llama.attention.layer_norm_rms_epsilon", json!(-1e-5)),
        ("llama.attention.value_length", json!(8)),
        ("llama.rope.dimension_count", json!(7)),
        ("llama.rope.dimension_count", json!(18)),
        ("llama.rope.freq_base", json!(0.5)),
        ("llama.rope.scaling.type", json!("longrope")),
        ("llama.rope.scaling.factor", json!(0.5)),
        ("llama.attention.temperature_scale", json!(0.1)),
    ];
    for (key, value) in cases {
        let error = error_of(&with(key, value.clone()));
        assert!(error.contains(key), "{key} = {value}: {error}");
    }
    let cases = [
        ("mixtral", "llama.expert_count", json!(1 << 30)),
        ("mixtral", "llama.expert_used_count", json!(0)),
        ("mixtral", "llama.expert_used_count", json!(6)),
        ("qwen3", "qwen3.expert_count", json!(8)),
        ("qwen3moe", "qwen3moe.expert_count", json!(0)),
        ("qwen3moe", "qwen3moe.expert_feed_forward_length", json!(0)),
    ];
    for (name, key, value) in cases {
        let mut tiny = Tiny::named(name);
        tiny.metadata.insert(key.to_owned(), value.clone());
        let error = error_of(&tiny);
        assert!(error.contains(key), "{key} = {value}: {error}");
    }
    let mut tiny = with("llama.attention.sliding_window", json!(8));
    let pattern = "llama.attention.sliding_window_pattern";
    tiny.metadata
        .insert(pattern.to_owned(), json!([true, false]));
    assert!(error_of(&tiny).contains(pattern));
}

#[test]
fn tensors_are_checked_against_the_metadata() {
    let mut tiny = Tiny::named("llama2");
    let name = "blk.1.attn_k.weight";
    tiny.tensors.insert(name.to_owned(), vec![64, 48]);
    assert_eq!(
        error_of(&tiny),
        "tensor `blk.1.attn_k.weight` has shape [64, 48], expected [64, 64]"
    );

    tiny.tensors.remove(name);
    assert_eq!(error_of(&tiny), "tensor `blk.1.attn_k.weight` is missing");

    let mut tiny = Tiny::named("llama2");
    tiny.tensors
        .insert("blk.0.attn_q_norm.weight".to_owned(), vec![16]);
    let error = error_of(&tiny);
    assert!(
        error.contains("`blk.0.attn_q_norm.weight`") && error.contains("`llama`"),
        "{error}"
    );

    let mut tiny = Tiny::named("llama3");
    tiny.values
        .insert("rope_freqs.weight".to_owned(), vec![1.0; 9]);
    assert_eq!(
        error_of(&tiny),
        "tensor `rope_freqs.weight` has shape [9], expected [8]"
    );

    let mut tiny = Tiny::named("qwen2");
    tiny.tensors.remove("blk.2.attn_v.bias");
    assert_eq!(error_of(&tiny), "tensor `blk.2.attn_v.bias` is missing");
}

#[test]
fn experts_that_a_backend_cannot_cut_are_named() {
    let mut tiny = Tiny::named("mixtral");
    for (name, shape) in &mut tiny.tensors {
        if name.contains("_exps.") {
            shape
                .iter_mut()
                .filter(|side| **side == 96)
                .for_each(|side| *side = 40);
        }
    }
    let key = "llama.feed_forward_length".to_owned();
    tiny.metadata.insert(key, json!(40));
    let error = error_of(&tiny);
    assert!(error.contains("blk.0.ffn_gate_exps.weight"), "{error}");
    assert!(error.contains("40 rows"), "{error}");
}

/// Bytes of the metadata and the tensor directory changed at random: such a file is refused or computes something.
#[test]
fn damaged_files_do_not_panic() {
    let (mut loaded, mut refused) = (0, 0);
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for (_, tiny) in Tiny::all() {
        let bytes = tiny.gguf_bytes(Format::Q8_0);
        // About where the metadata and the directory of such a file end.
        let head = 2048;
        for _ in 0..300 {
            let mut bytes = bytes.clone();
            for _ in 0..=random(3) {
                bytes[random(head)] = [0, 1, 2, 0x7f, 0x80, 0xff, random(256) as u8][random(7)];
            }
            let Ok(file) = GgufFile::from_bytes(bytes) else {
                continue;
            };
            let backend = CpuBackend::new(fixture::quantised(1)).unwrap();
            match load(&file, backend, &mut |_, _| {}) {
                Err(_) => refused += 1,
                Ok(mut model) => {
                    model
                        .reserve(Limits {
                            blocks: 1,
                            batch_tokens: 8,
                            logit_rows: 8,
                            state_rows: 0,
                            running_states: 0,
                        })
                        .unwrap();
                    fixture::run(&mut *model, &tiny.tokens[..8], &[8], &[0]);
                    loaded += 1;
                }
            }
        }
    }
    assert!(
        loaded > 100 && refused > 100,
        "{loaded} loaded, {refused} refused"
    );
}
