//! Tiny random models of each architecture against the logits that transformers computes for them in F32.

use crate::fixture::{self, Tiny};
use andante_gguf::Format;
use serde_json::json;

/// Largest error of a row, relative to the root mean square of the expected row.
fn relative_error(found: &[f32], expected: &[f32]) -> f32 {
    let square_sum: f32 = expected.iter().map(|x| x * x).sum();
    let rms = (square_sum / expected.len() as f32).sqrt();
    let errors = found.iter().zip(expected).map(|(f, e)| (f - e).abs());
    errors.fold(0.0, f32::max) / rms
}

#[test]
fn every_architecture_agrees_with_transformers() {
    for (name, tiny) in Tiny::all() {
        let mut model = fixture::model(&tiny.gguf(Format::F32), fixture::reference());
        let rows = fixture::run(&mut *model, &tiny.tokens, &[tiny.tokens.len()], &[0, 1, 2]);
        for (&position, expected) in tiny.positions.iter().zip(&tiny.logits) {
            let error = relative_error(&rows[position], expected);
            assert!(
                error <= 1e-4,
                "{name}, position {position}: relative error {error}"
            );
        }
    }
}

/// What the test above compares must depend on what tells the models apart.
#[test]
fn another_window_rope_or_number_of_experts_gives_other_logits() {
    let changes = [
        (
            "mistral_window",
            "llama.attention.sliding_window",
            json!(25),
        ),
        (
            "mistral3_yarn",
            "mistral3.rope.scaling.yarn_log_multiplier",
            json!(0.6),
        ),
        (
            "mistral3_yarn",
            "mistral3.rope.scaling.yarn_beta_slow",
            json!(1.0),
        ),
        ("qwen2_yarn", "qwen2.rope.scaling.attn_factor", json!(1.01)),
        ("gemma3", "gemma3.rope.scaling.factor", json!(4.0)),
        ("gemma3", "gemma3.rope.freq_base_swa", json!(20000.0)),
        (
            "gemma3",
            "gemma3.attention.sliding_window_pattern",
            json!(7),
        ),
        ("gemma3", "gemma3.attention.sliding_window", json!(15)),
        ("gpt_oss", "gpt-oss.attention.sliding_window", json!(25)),
        (
            "gpt_oss",
            "gpt-oss.attention.sliding_window_pattern",
            json!([false, true, false, true]),
        ),
        (
            "gpt_oss",
            "gpt-oss.rope.scaling.original_context_length",
            json!(70),
        ),
        ("gpt_oss", "gpt-oss.expert_used_count", json!(3)),
        ("qwen3moe", "qwen3moe.expert_used_count", json!(4)),
    ];
    for (name, key, value) in changes {
        let mut tiny = Tiny::named(name);
        tiny.metadata.insert(key.to_owned(), value);
        let mut model = fixture::model(&tiny.gguf(Format::F32), fixture::reference());
        let rows = fixture::run(&mut *model, &tiny.tokens, &[tiny.tokens.len()], &[0, 1, 2]);
        let last = *tiny.positions.last().unwrap();
        let error = relative_error(&rows[last], tiny.logits.last().unwrap());
        assert!(
            error > 1e-3,
            "{name} with another {key}: relative error {error}"
        );
    }
}

#[test]
fn other_sinks_and_biases_give_other_logits() {
    for (name, len) in [
        ("blk.2.attn_sinks.weight", 4),
        ("blk.3.attn_output.bias", 64),
        ("blk.3.ffn_gate_inp.bias", 6),
    ] {
        let mut tiny = Tiny::named("gpt_oss");
        assert_eq!(tiny.tensors.remove(name), Some(vec![len]), "{name}");
        let values = (0..len).map(|i| i as f32 - 2.0).collect();
        tiny.values.insert(name.to_owned(), values);
        let mut model = fixture::model(&tiny.gguf(Format::F32), fixture::reference());
        let rows = fixture::run(&mut *model, &tiny.tokens, &[tiny.tokens.len()], &[0, 1, 2]);
        let last = *tiny.positions.last().unwrap();
        let error = relative_error(&rows[last], tiny.logits.last().unwrap());
        assert!(error > 1e-3, "another {name}: relative error {error}");
    }
}

/// The converter writes a period or one flag per layer; both say the same.
#[test]
fn window_flags_equal_the_period() {
    let mut tiny = Tiny::named("gemma3");
    let flags = [true, true, true, true, true, false, true];
    tiny.metadata.insert(
        "gemma3.attention.sliding_window_pattern".to_owned(),
        json!(flags),
    );
    let mut model = fixture::model(&tiny.gguf(Format::F32), fixture::reference());
    let rows = fixture::run(&mut *model, &tiny.tokens, &[tiny.tokens.len()], &[0, 1, 2]);
    let last = *tiny.positions.last().unwrap();
    assert!(relative_error(&rows[last], tiny.logits.last().unwrap()) <= 1e-4);
}
