//! A DeepSeek V4 whose weights come from a rule that any language can repeat: FNV-1a of a tensor's name seeds splitmix64, whose words
//! become values between -1 and 1, scaled by the kind of tensor.

#[path = "../../../tests/tiny/words.rs"]
mod words;

use andante_gguf::{Array, Format, GgufWriter, Value};
use words::words;

const LAYERS: usize = 5;
pub(super) const HIDDEN: u64 = 256;
pub(super) const VOCAB: u64 = 512;
pub(super) const HEADS: u64 = 4;
pub(super) const HEAD_DIM: u64 = 128;
const Q_RANK: u64 = 256;
const GROUPS: u64 = 2;
const GROUP_RANK: u64 = 128;
const EXPERTS: u64 = 4;
const CHOSEN: u64 = 2;
const WIDTH: u64 = 256;
pub(super) const INDEX_HEADS: u64 = 16;
const INDEX_WIDTH: u64 = 128;
const STREAMS: u64 = 4;
const HASH_LAYERS: usize = 1;
const RATIOS: [i32; LAYERS] = [0, 4, 128, 4, 128];

/// Kinds of vectors and small tables: a part of the name, mean and scale.
const RULES: [(&str, f64, f64); 6] = [
    ("attn_sinks", 0.5, 1.5),
    ("exp_probs_b", 0.0, 0.5),
    ("_ape", 0.0, 0.9),
    ("_base", 0.0, 0.9),
    ("_scale", 1.0, 0.3),
    ("norm", 1.0, 0.25),
];

/// Kinds of matrices: a part of the name and how much they amplify.
const GAINS: [(&str, f64); 6] = [
    ("ffn_gate_inp", 1.5),
    ("ffn_gate", 1.5),
    ("ffn_up", 1.5),
    ("attn_output", 2.0),
    ("hc_", 1.0),
    ("output.weight", 2.0),
];

/// The model before it is written.
pub(super) struct File {
    pub(super) metadata: Vec<(String, Value)>,
    pub(super) tensors: Vec<Entry>,
}

/// A tensor before it is written.
pub(super) struct Entry {
    pub(super) name: String,
    /// The contiguous dimension first.
    pub(super) shape: Vec<u64>,
    pub(super) values: Values,
}

/// What a tensor holds.
pub(super) enum Values {
    Floats(Vec<f32>),
    Ids(Vec<i32>),
}

impl File {
    pub(super) fn new() -> Self {
        let entry = |(name, shape): (String, Vec<u64>)| {
            let values = if name.contains("tid2eid") {
                Values::Ids(table(&name))
            } else {
                Values::Floats(values(&name, &shape))
            };
            Entry {
                name,
                shape,
                values,
            }
        };
        Self {
            metadata: metadata(),
            tensors: tensors().into_iter().map(entry).collect(),
        }
    }

    /// Sets a key, given without the architecture.
    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.remove(key);
        self.metadata
            .push((format!("deepseek4.{key}"), value.into()));
    }

    /// Takes a key out.
    pub(super) fn remove(&mut self, key: &str) {
        let key = format!("deepseek4.{key}");
        self.metadata.retain(|(found, _)| *found != key);
    }

    /// Changes the values of all tensors with `part` in their names: of floats, each with its place in the tensor.
    pub(super) fn change(&mut self, part: &str, value: impl Fn(usize, f32) -> f32) {
        let mut changed = false;
        for Entry { name, values, .. } in &mut self.tensors {
            if let Values::Floats(values) = values
                && name.contains(part)
            {
                changed = true;
                let all = values.iter_mut().enumerate();
                all.for_each(|(i, x)| *x = value(i, *x));
            }
        }
        assert!(changed, "there are tensors called {part}");
    }

    /// The file, its larger matrices in `format`.
    pub(super) fn bytes(&self, format: Format) -> Vec<u8> {
        let mut writer = GgufWriter::new();
        for (key, value) in &self.metadata {
            writer = writer.metadata(key, value.clone());
        }
        let small = ["_ape", "hc_", "gate_inp"];
        for Entry {
            name,
            shape,
            values,
        } in &self.tensors
        {
            writer = match values {
                Values::Ids(ids) => {
                    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
                    writer.tensor(name, shape, Format::I32, bytes)
                }
                Values::Floats(values) => {
                    let small = shape.len() == 1 || small.iter().any(|part| name.contains(part));
                    let format = if small { Format::F32 } else { format };
                    writer.tensor_f32(name, shape, format, values)
                }
            };
        }
        writer.finish()
    }
}

/// The model file.
pub(super) fn gguf() -> Vec<u8> {
    File::new().bytes(Format::F32)
}

/// Token ids of the prompt: the first ones are the same for any length.
pub(super) fn ids(count: u64) -> Vec<u32> {
    words("ids", count)
        .map(|word| (word % VOCAB) as u32)
        .collect()
}

fn metadata() -> Vec<(String, Value)> {
    let integers = [
        ("block_count", LAYERS as u64),
        ("context_length", 16384),
        ("embedding_length", HIDDEN),
        ("vocab_size", VOCAB),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", 1),
        ("attention.key_length", HEAD_DIM),
        ("attention.value_length", HEAD_DIM),
        ("rope.dimension_count", 64),
        ("attention.q_lora_rank", Q_RANK),
        ("attention.sliding_window", 32),
        ("expert_count", EXPERTS),
        ("expert_used_count", CHOSEN),
        ("expert_gating_func", 4),
        ("expert_feed_forward_length", WIDTH),
        ("expert_shared_count", 1),
        ("hash_layer_count", HASH_LAYERS as u64),
        ("attention.indexer.head_count", INDEX_HEADS),
        ("attention.indexer.key_length", INDEX_WIDTH),
        ("attention.indexer.top_k", 8),
        ("attention.output_group_count", GROUPS),
        ("attention.output_lora_rank", GROUP_RANK),
        ("hyper_connection.count", STREAMS),
        ("hyper_connection.sinkhorn_iterations", 20),
        ("embedding_length_out", HIDDEN * STREAMS),
        ("rope.scaling.original_context_length", 1024),
    ];
    let floats = [
        ("rope.freq_base", 10_000.0),
        ("rope.scaling.factor", 16.0),
        ("rope.scaling.yarn_beta_fast", 32.0),
        ("rope.scaling.yarn_beta_slow", 1.0),
        ("attention.layer_norm_rms_epsilon", 1e-6),
        ("expert_weights_scale", 1.5),
        ("attention.compress_rope_freq_base", 160_000.0),
        ("hyper_connection.epsilon", 1e-6),
    ];
    let clamps = || Value::Array(Array::F32(vec![2.0; LAYERS]));
    let others = [
        ("rope.scaling.type", "yarn".into()),
        ("expert_weights_norm", Value::Bool(true)),
        ("swiglu_clamp_exp", clamps()),
        ("swiglu_clamp_shexp", clamps()),
        (
            "attention.compress_ratios",
            Value::Array(Array::I32(RATIOS.to_vec())),
        ),
    ];
    let integers = integers.map(|(key, value)| (key, Value::U32(value as u32)));
    let floats = floats.map(|(key, value)| (key, Value::F32(value)));
    let all = integers.into_iter().chain(floats).chain(others);
    let all = all.map(|(key, value)| (format!("deepseek4.{key}"), value));
    let first = ("general.architecture".to_owned(), "deepseek4".into());
    let last = ("tokenizer.ggml.model".to_owned(), "none".into());
    std::iter::once(first).chain(all).chain([last]).collect()
}

/// Names and shapes, the contiguous dimension first.
fn tensors() -> Vec<(String, Vec<u64>)> {
    let wide = STREAMS * HIDDEN;
    let mut all = vec![
        ("token_embd.weight".to_owned(), vec![HIDDEN, VOCAB]),
        ("output.weight".to_owned(), vec![HIDDEN, VOCAB]),
        ("output_norm.weight".to_owned(), vec![HIDDEN]),
        ("output_hc_fn.weight".to_owned(), vec![wide, STREAMS]),
        ("output_hc_base.weight".to_owned(), vec![STREAMS]),
        ("output_hc_scale.weight".to_owned(), vec![1]),
    ];
    for (layer, ratio) in RATIOS.into_iter().enumerate() {
        let mut add = |name: &str, shape: &[u64]| {
            let end = if name.ends_with(".bias") {
                ""
            } else {
                ".weight"
            };
            all.push((format!("blk.{layer}.{name}{end}"), shape.to_vec()));
        };
        attention(&mut add);
        for half in ["attn", "ffn"] {
            add(&format!("hc_{half}_fn"), &[wide, 24]);
            add(&format!("hc_{half}_base"), &[24]);
            add(&format!("hc_{half}_scale"), &[3]);
        }
        if ratio > 0 {
            compressor(&mut add, "attn_compressor", HEAD_DIM, ratio as u64);
        }
        if ratio == 4 {
            add("indexer.attn_q_b", &[Q_RANK, INDEX_HEADS * INDEX_WIDTH]);
            add("indexer.proj", &[HIDDEN, INDEX_HEADS]);
            compressor(&mut add, "indexer_compressor", INDEX_WIDTH, 4);
        }
        add("ffn_gate_inp", &[HIDDEN, EXPERTS]);
        if layer < HASH_LAYERS {
            add("ffn_gate_tid2eid", &[CHOSEN, VOCAB]);
        } else {
            add("exp_probs_b.bias", &[EXPERTS]);
        }
        for (name, cols, rows) in [
            ("gate", HIDDEN, WIDTH),
            ("up", HIDDEN, WIDTH),
            ("down", WIDTH, HIDDEN),
        ] {
            add(&format!("ffn_{name}_exps"), &[cols, rows, EXPERTS]);
            add(&format!("ffn_{name}_shexp"), &[cols, rows]);
        }
    }
    all
}

fn attention(add: &mut impl FnMut(&str, &[u64])) {
    let low = GROUPS * GROUP_RANK;
    add("attn_norm", &[HIDDEN]);
    add("ffn_norm", &[HIDDEN]);
    add("attn_sinks", &[HEADS]);
    add("attn_q_a", &[HIDDEN, Q_RANK]);
    add("attn_q_a_norm", &[Q_RANK]);
    add("attn_q_b", &[Q_RANK, HEADS * HEAD_DIM]);
    add("attn_kv", &[HIDDEN, HEAD_DIM]);
    add("attn_kv_a_norm", &[HEAD_DIM]);
    add("attn_output_a", &[HEADS * HEAD_DIM / GROUPS, low]);
    add("attn_output_b", &[low, HIDDEN]);
}

fn compressor(add: &mut impl FnMut(&str, &[u64]), name: &str, width: u64, ratio: u64) {
    let token = if ratio == 4 { 2 * width } else { width };
    add(&format!("{name}_kv"), &[HIDDEN, token]);
    add(&format!("{name}_gate"), &[HIDDEN, token]);
    add(&format!("{name}_ape"), &[token, ratio]);
    add(&format!("{name}_norm"), &[width]);
}

fn values(name: &str, shape: &[u64]) -> Vec<f32> {
    let units = words(name, shape.iter().product())
        .map(|word| (word >> 40) as f64 / f64::from(1 << 23) - 1.0);
    let rule = RULES.iter().find(|(part, ..)| name.contains(part));
    if let Some(&(_, mean, scale)) = rule {
        return units.map(|unit| (mean + scale * unit) as f32).collect();
    }
    let gain = GAINS.iter().find(|(part, _)| name.contains(part));
    let scale = match name {
        "token_embd.weight" => 3.0_f64.sqrt(),
        _ => gain.map_or(1.0, |gain| gain.1) * (3.0 / shape[0] as f64).sqrt(),
    };
    units.map(|unit| (scale * unit) as f32).collect()
}

/// Each token's experts: different ones, since the stride is odd and their number a power of two.
fn table(name: &str) -> Vec<i32> {
    let experts = |word: u64| {
        let stride = 2 * ((word >> 32) % (EXPERTS / 2)) + 1;
        (0..CHOSEN).map(move |i| (word.wrapping_add(i * stride) % EXPERTS) as i32)
    };
    words(name, VOCAB).flat_map(experts).collect()
}
