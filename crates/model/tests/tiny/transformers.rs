//! Tiny random models of each architecture against the logits that transformers computes for them in F32.

use crate::fixture::{self, Tiny};
use andante_gguf::Format;

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
fn another_window_or_rope_gives_other_logits() {
    let changes = [
        (
            "mistral_window",
            "llama.attention.sliding_window",
            serde_json::json!(25),
        ),
        (
            "mistral3_yarn",
            "mistral3.rope.scaling.yarn_log_multiplier",
            serde_json::json!(0.6),
        ),
        (
            "mistral3_yarn",
            "mistral3.rope.scaling.yarn_beta_slow",
            serde_json::json!(1.0),
        ),
        (
            "qwen2_yarn",
            "qwen2.rope.scaling.attn_factor",
            serde_json::json!(1.01),
        ),
        (
            "gemma3",
            "gemma3.rope.scaling.factor",
            serde_json::json!(4.0),
        ),
        (
            "gemma3",
            "gemma3.rope.freq_base_swa",
            serde_json::json!(20000.0),
        ),
        (
            "gemma3",
            "gemma3.attention.sliding_window_pattern",
            serde_json::json!(7),
        ),
        (
            "gemma3",
            "gemma3.attention.sliding_window",
            serde_json::json!(15),
        ),
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

/// The converter writes a period or one flag per layer; both say the same.
#[test]
fn window_flags_equal_the_period() {
    let mut tiny = Tiny::named("gemma3");
    let flags = [true, true, true, true, true, false, true];
    tiny.metadata.insert(
        "gemma3.attention.sliding_window_pattern".to_owned(),
        serde_json::json!(flags),
    );
    let mut model = fixture::model(&tiny.gguf(Format::F32), fixture::reference());
    let rows = fixture::run(&mut *model, &tiny.tokens, &[tiny.tokens.len()], &[0, 1, 2]);
    let last = *tiny.positions.last().unwrap();
    assert!(relative_error(&rows[last], tiny.logits.last().unwrap()) <= 1e-4);
}
