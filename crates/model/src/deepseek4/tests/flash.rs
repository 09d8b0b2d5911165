//! A file of Flash's shape in the formats of ds4's 2-bit files, without its weights: what the file says follows from its head.

use std::fs::File;
use std::io::Write;

use andante_gguf::{Array, Format, GgufHead, Metadata, Value};

use super::*;
use crate::deepseek4::spec::Spec;

const LAYERS: usize = 43;
const HIDDEN: u64 = 4096;
const VOCAB: u64 = 129_280;
const HEADS: u64 = 64;
const HEAD_DIM: u64 = 512;
const Q_RANK: u64 = 1024;
const GROUPS: u64 = 8;
const GROUP_RANK: u64 = 1024;
const EXPERTS: u64 = 256;
const CHOSEN: u64 = 6;
const WIDTH: u64 = 2048;
const INDEX_HEADS: u64 = 64;
const INDEX_WIDTH: u64 = 128;
const HASH_LAYERS: usize = 3;

/// Frequencies and ramp that another implementation worked out.
const ROPES: &str = include_str!("flash_ropes.json");

fn ratio(layer: usize) -> u64 {
    match layer {
        0 | 1 => 0,
        _ if layer.is_multiple_of(2) => 4,
        _ => 128,
    }
}

fn metadata() -> Metadata {
    let mut metadata = Metadata::default();
    let mut set = |key: &str, value: Value| {
        let before = metadata.set(&format!("deepseek4.{key}"), value);
        assert!(before.is_none());
    };
    for (key, value) in [
        ("block_count", LAYERS as u64),
        ("context_length", 1 << 20),
        ("embedding_length", HIDDEN),
        ("vocab_size", VOCAB),
        ("attention.head_count", HEADS),
        ("attention.key_length", HEAD_DIM),
        ("rope.dimension_count", 64),
        ("attention.q_lora_rank", Q_RANK),
        ("attention.sliding_window", 128),
        ("expert_count", EXPERTS),
        ("expert_used_count", CHOSEN),
        ("expert_feed_forward_length", WIDTH),
        ("hash_layer_count", HASH_LAYERS as u64),
        ("attention.indexer.head_count", INDEX_HEADS),
        ("attention.indexer.key_length", INDEX_WIDTH),
        ("attention.indexer.top_k", 512),
        ("attention.output_group_count", GROUPS),
        ("attention.output_lora_rank", GROUP_RANK),
        ("hyper_connection.count", 4),
        ("hyper_connection.sinkhorn_iterations", 20),
        ("rope.scaling.original_context_length", 65_536),
    ] {
        set(key, Value::U32(value as u32));
    }
    for (key, value) in [
        ("rope.freq_base", 10_000.0),
        ("attention.compress_rope_freq_base", 160_000.0),
        ("rope.scaling.factor", 16.0),
        ("rope.scaling.yarn_beta_fast", 32.0),
        ("rope.scaling.yarn_beta_slow", 1.0),
        ("attention.layer_norm_rms_epsilon", 1e-6),
        ("hyper_connection.epsilon", 1e-6),
        ("expert_weights_scale", 1.5),
        ("swiglu_clamp_exp", 10.0),
    ] {
        set(key, Value::F32(value));
    }
    set("rope.scaling.type", "yarn".into());
    let ratios = (0..LAYERS).map(|layer| ratio(layer) as i32).chain([0]);
    let ratios = Value::Array(Array::I32(ratios.collect()));
    set("attention.compress_ratios", ratios);
    metadata.set("general.architecture", "deepseek4".into());
    metadata
}

/// Names and shapes, the contiguous dimension first.
fn tensors() -> Vec<(String, Vec<u64>)> {
    let wide = 4 * HIDDEN;
    let named = |name: &str, shape: &[u64]| (name.to_owned(), shape.to_vec());
    let mut all = vec![
        named("token_embd.weight", &[HIDDEN, VOCAB]),
        named("output.weight", &[HIDDEN, VOCAB]),
        named("output_norm.weight", &[HIDDEN]),
        named("output_hc_fn.weight", &[wide, 4]),
        named("output_hc_base.weight", &[4]),
        named("output_hc_scale.weight", &[1]),
    ];
    for layer in 0..LAYERS {
        let mut add = |name: &str, shape: &[u64]| {
            let name = format!("blk.{layer}.{name}.weight");
            all.push((name, shape.to_vec()));
        };
        for (name, shape) in [
            ("attn_norm", &[HIDDEN][..]),
            ("ffn_norm", &[HIDDEN]),
            ("attn_sinks", &[HEADS]),
            ("attn_q_a", &[HIDDEN, Q_RANK]),
            ("attn_q_a_norm", &[Q_RANK]),
            ("attn_q_b", &[Q_RANK, HEADS * HEAD_DIM]),
            ("attn_kv", &[HIDDEN, HEAD_DIM]),
            ("attn_kv_a_norm", &[HEAD_DIM]),
            (
                "attn_output_a",
                &[HEADS * HEAD_DIM / GROUPS, GROUPS * GROUP_RANK],
            ),
            ("attn_output_b", &[GROUPS * GROUP_RANK, HIDDEN]),
            ("hc_attn_fn", &[wide, 24]),
            ("hc_attn_base", &[24]),
            ("hc_attn_scale", &[3]),
            ("hc_ffn_fn", &[wide, 24]),
            ("hc_ffn_base", &[24]),
            ("hc_ffn_scale", &[3]),
            ("ffn_gate_inp", &[HIDDEN, EXPERTS]),
            ("ffn_gate_exps", &[HIDDEN, WIDTH, EXPERTS]),
            ("ffn_up_exps", &[HIDDEN, WIDTH, EXPERTS]),
            ("ffn_down_exps", &[WIDTH, HIDDEN, EXPERTS]),
            ("ffn_gate_shexp", &[HIDDEN, WIDTH]),
            ("ffn_up_shexp", &[HIDDEN, WIDTH]),
            ("ffn_down_shexp", &[WIDTH, HIDDEN]),
        ] {
            add(name, shape);
        }
        let mut compressor = |name: &str, width: u64| {
            let token = if ratio(layer) == 4 { 2 * width } else { width };
            add(&format!("{name}_kv"), &[HIDDEN, token]);
            add(&format!("{name}_gate"), &[HIDDEN, token]);
            add(&format!("{name}_ape"), &[token, ratio(layer)]);
            add(&format!("{name}_norm"), &[width]);
        };
        if ratio(layer) > 0 {
            compressor("attn_compressor", HEAD_DIM);
        }
        if ratio(layer) == 4 {
            compressor("indexer_compressor", INDEX_WIDTH);
            add("indexer.attn_q_b", &[Q_RANK, INDEX_HEADS * INDEX_WIDTH]);
            add("indexer.proj", &[HIDDEN, INDEX_HEADS]);
        }
        if layer < HASH_LAYERS {
            add("ffn_gate_tid2eid", &[CHOSEN, VOCAB]);
        } else {
            let name = format!("blk.{layer}.exp_probs_b.bias");
            all.push((name, vec![EXPERTS]));
        }
    }
    all
}

/// The file's head, and nothing where the weights would be.
fn open() -> GgufFile {
    let mut head = GgufHead::new(metadata());
    let mut bytes = 0;
    for (name, shape) in tensors() {
        let format = match name.contains("tid2eid") {
            true => Format::I32,
            false => portable::format(&name, &shape),
        };
        head.tensor(&name, &shape, format);
        let rows: u64 = shape.iter().skip(1).product();
        let data = rows as usize * format.row_bytes(shape[0] as usize);
        bytes += data + head.padding(data);
    }
    let head = head.bytes();
    let path = std::env::temp_dir().join(format!("andante-flash-{}.gguf", std::process::id()));
    let mut file = File::create(&path).unwrap();
    file.write_all(&head).unwrap();
    file.set_len((head.len() + bytes) as u64).unwrap();
    let opened = GgufFile::open(&path);
    std::fs::remove_file(&path).unwrap();
    opened.unwrap()
}

/// The published figures: layers of each kind, 284.33 billion parameters in 86.71 GB, of which a token reads 9.556 GB; 6,880 bytes of
/// keys a token, 1,381.6 MB for 200,000 and 706.1 MB in few bits, both beside what compressors have not used up yet.
#[test]
fn figures_are_the_published_ones() {
    let file = open();
    assert_eq!(file.tensors().count(), 1328);
    let bytes: usize = file.tensors().map(|tensor| tensor.data.len()).sum();
    let weights = |tensor: andante_gguf::Tensor<'_>| match tensor.format {
        Format::I32 => 0,
        _ => tensor.shape.iter().product(),
    };
    let parameters: u64 = file.tensors().map(weights).sum();
    let near = |what: &str, found: f64, expected: f64, step: f64| {
        assert!((found - expected).abs() <= step, "{what}: {found}");
    };
    near("parameters", parameters as f64 / 1e9, 284.33, 0.005);
    near("bytes", bytes as f64 / 1e9, 86.71, 0.015);
    let outline = crate::outline(&file).unwrap();
    let counts: Vec<usize> = outline.layers.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [2, 21, 20]);
    near("read", outline.token_bytes as f64 / 1e9, 9.556, 0.001);
    let (_, half) = outline.kv[0];
    assert_eq!((half.block_tokens, half.block_bytes), (128, 128 * 6880));
    let pending = 4 * (21 * (2 * 8 * 2 * 512 + 2 * 8 * 2 * 128) + 20 * (2 * 128 * 512));
    let of_context = |layout: crate::KvLayout| {
        let blocks = 200_000.0 / f64::from(layout.block_tokens);
        blocks * layout.block_bytes as f64 + (layout.state_bytes - pending) as f64
    };
    near("200k", of_context(half) / 1e6, 1381.6, 0.05);
    let (_, compact) = outline.kv[1];
    near("compact 200k", of_context(compact) / 1e6, 706.1, 0.05);
}

#[test]
fn frequencies_are_the_references() {
    let file = open();
    let spec = Spec::read(&Keys::new(&file).unwrap()).unwrap();
    let expected: serde_json::Value = serde_json::from_str(ROPES).unwrap();
    for (ropes, which) in spec.ropes.iter().zip(["main", "compress"]) {
        let expected = expected[which].as_array().unwrap();
        let found = ropes.forward.frequencies();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let expected = expected.as_f64().unwrap();
            assert!((found / expected - 1.0).abs() < 1e-12, "{which}: {found}");
        }
        assert!((ropes.forward.magnitude() - 1.0).abs() < 1e-12);
    }
}
