//! What a file can get wrong, and what it may leave out.

use super::*;
use andante_gguf::{Array, Value};

fn without(key: &str) -> Vec<u8> {
    let key = format!("deepseek4.{key}");
    portable::edited(|found, _| found != key, |_| {})
}

fn with(key: &str, value: &Value) -> Vec<u8> {
    let key = format!("deepseek4.{key}");
    portable::edited(
        |found, _| found != key,
        |metadata| metadata.push((key.clone(), value.clone())),
    )
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
        ("nextn_predict_layers", Value::U32(1)),
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
        ("attention.compress_ratios", ratios(&[0, 4, 24, 4, 128])),
        ("attention.compress_ratios", ratios(&[0, 4, -1, 4, 128])),
        ("swiglu_clamp_exp", Value::Array(Array::F32(vec![2.0; 4]))),
        ("swiglu_clamp_shexp", Value::F32(-1.0)),
        ("rope.scaling.type", "longrope".into()),
        ("rope.scaling.factor", Value::F32(0.5)),
    ] {
        error(key, with(key, &value));
    }
}

#[test]
fn facts_are_those_of_the_file() {
    let model = try_load(portable::gguf(), exact(1)).unwrap();
    let info = model.info();
    assert_eq!((info.vocab, info.hidden, info.layers), (512, 256, 5));
    assert_eq!((info.heads, info.kv_heads, info.head_dim), (4, 1, 128));
    assert_eq!(info.windows, [Some(32), None, None, None, None]);
    // Two layers with 8 rows of 128 and as many index rows, two with one row; all F32.
    let block = 4 * (2 * 8 * 256 + 2 * 128);
    // Five windows; two layers of 8 tokens, keys and gates of both series, for attention and index; two of 128 tokens.
    let state = 4 * (5 * 32 * 128 + 2 * 8 * 2 * (256 + 256) + 2 * 128 * 2 * 128);
    let layout = model.kv_layout();
    assert_eq!((layout.block_bytes, layout.state_bytes), (block, state));
}
