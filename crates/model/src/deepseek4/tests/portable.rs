//! A DeepSeek V4 whose weights come from a rule that any language can repeat: FNV-1a of a tensor's name seeds splitmix64, whose words
//! become values between -1 and 1, scaled by the kind of tensor. `scripts/make_deepseek4_fixtures.py` writes the same files.

#[path = "../../../tests/tiny/words.rs"]
mod words;

use andante_gguf::{Array, Format, GgufWriter, Value, quant};
use words::words;

pub(super) const LAYERS: usize = 5;
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
    Blocks(Format, Vec<u8>),
}

impl File {
    pub(super) fn new() -> Self {
        Self {
            metadata: metadata(),
            tensors: tensors().into_iter().map(Entry::new).collect(),
        }
    }

    /// The model in the formats of ds4's files of 2 bits. Of a block, scales follow from the kind of tensor, all else is the
    /// formula's bits.
    pub(super) fn quantised() -> Self {
        let mut file = Self::new();
        for entry in &mut file.tensors {
            if let Values::Floats(values) = &entry.values {
                let format = format(&entry.name, &entry.shape);
                let mut bytes = Vec::new();
                match format {
                    Format::F32 | Format::F16 => quant::quantize(format, values, &mut bytes),
                    _ => bytes = blocks(&entry.name, &entry.shape, format),
                }
                entry.values = Values::Blocks(format, bytes);
            }
        }
        file
    }

    /// The model with a block that predicts one token further, as ds4 writes it.
    pub(super) fn with_mtp() -> Self {
        let mut file = Self::new();
        let mut add = |name: &str, shape: &[u64]| {
            let name = format!("mtp.0.{name}{}", end(name));
            file.tensors.push(Entry::new((name, shape.to_vec())));
        };
        layer(&mut add, 0, false);
        add("e_proj", &[HIDDEN, HIDDEN]);
        add("h_proj", &[HIDDEN, HIDDEN]);
        for norm in ["enorm", "hnorm", "norm"] {
            add(norm, &[HIDDEN]);
        }
        add("hc_head_fn", &[STREAMS * HIDDEN, STREAMS]);
        add("hc_head_base", &[STREAMS]);
        add("hc_head_scale", &[1]);
        file
    }

    /// The same as llama.cpp's converter writes it: as the last layer, its two matrices in one, its head under the model's names.
    pub(super) fn with_mtp_as_layer() -> Self {
        let mut file = Self::with_mtp();
        file.set("block_count", Value::U32(LAYERS as u32 + 1));
        file.set("nextn_predict_layers", Value::U32(1));
        let limits = || Value::Array(Array::F32(vec![2.0; LAYERS + 1]));
        file.set("swiglu_clamp_exp", limits());
        file.set("swiglu_clamp_shexp", limits());
        let ratios = RATIOS.into_iter().chain([0]).collect();
        let ratios = Value::Array(Array::I32(ratios));
        file.set("attention.compress_ratios", ratios);
        let [token, stream] = ["e_proj", "h_proj"].map(|name| {
            let Values::Floats(values) = file.take(&format!("mtp.0.{name}.weight")).values else {
                panic!("a matrix");
            };
            values
        });
        let width = HIDDEN as usize;
        let rows = token.chunks(width).zip(stream.chunks(width));
        let values = rows.flat_map(|(token, stream)| [token, stream].concat());
        file.tensors.push(Entry {
            name: "mtp.0.nextn.eh_proj.weight".to_owned(),
            shape: vec![2 * HIDDEN, HIDDEN],
            values: Values::Floats(values.collect()),
        });
        for part in ["fn", "base", "scale"] {
            let mut entry = file.take(&format!("mtp.0.hc_head_{part}.weight"));
            entry.name = format!("output_hc_{part}.weight");
            file.take(&entry.name);
            file.tensors.push(entry);
        }
        for entry in &mut file.tensors {
            for (from, to) in [
                ("mtp.0.enorm", "mtp.0.nextn.enorm"),
                ("mtp.0.hnorm", "mtp.0.nextn.hnorm"),
                ("mtp.0.norm", "mtp.0.nextn.shared_head_norm"),
                ("mtp.0.", "blk.5."),
            ] {
                entry.name = entry.name.replace(from, to);
            }
        }
        file
    }

    /// Takes a tensor out.
    pub(super) fn take(&mut self, name: &str) -> Entry {
        let at = self.tensors.iter().position(|entry| entry.name == name);
        self.tensors.remove(at.expect(name))
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
                Values::Blocks(format, bytes) => writer.tensor(name, shape, *format, bytes.clone()),
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

impl Entry {
    fn new((name, shape): (String, Vec<u64>)) -> Self {
        let values = if name.contains("tid2eid") {
            Values::Ids(table(&name))
        } else {
            Values::Floats(values(&name, &shape))
        };
        Self {
            name,
            shape,
            values,
        }
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
    for (i, ratio) in RATIOS.into_iter().enumerate() {
        let mut add = |name: &str, shape: &[u64]| {
            let name = format!("blk.{i}.{name}{}", end(name));
            all.push((name, shape.to_vec()));
        };
        layer(&mut add, ratio as u64, i < HASH_LAYERS);
    }
    all
}

/// What a tensor's name ends with.
fn end(name: &str) -> &'static str {
    if name.ends_with(".bias") {
        ""
    } else {
        ".weight"
    }
}

fn layer(add: &mut impl FnMut(&str, &[u64]), ratio: u64, hashed: bool) {
    attention(add);
    for half in ["attn", "ffn"] {
        add(&format!("hc_{half}_fn"), &[STREAMS * HIDDEN, 24]);
        add(&format!("hc_{half}_base"), &[24]);
        add(&format!("hc_{half}_scale"), &[3]);
    }
    if ratio > 0 {
        compressor(add, "attn_compressor", HEAD_DIM, ratio);
    }
    if ratio == 4 {
        add("indexer.attn_q_b", &[Q_RANK, INDEX_HEADS * INDEX_WIDTH]);
        add("indexer.proj", &[HIDDEN, INDEX_HEADS]);
        compressor(add, "indexer_compressor", INDEX_WIDTH, 4);
    }
    add("ffn_gate_inp", &[HIDDEN, EXPERTS]);
    if hashed {
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
    let scale = amplitude(name, shape[0]);
    units.map(|unit| (scale * unit) as f32).collect()
}

/// The largest magnitude of a matrix.
fn amplitude(name: &str, cols: u64) -> f64 {
    let gain = GAINS.iter().find(|(part, _)| name.contains(part));
    match name {
        "token_embd.weight" => 3.0_f64.sqrt(),
        _ => gain.map_or(1.0, |gain| gain.1) * (3.0 / cols as f64).sqrt(),
    }
}

/// The format that ds4's files of 2 bits have for a tensor.
pub(super) fn format(name: &str, shape: &[u64]) -> Format {
    let is = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let projections = ["attn_q_a", "attn_q_b", "attn_kv", "attn_output", "_shexp"];
    match shape.len() {
        1 => Format::F32,
        3 if name.contains("down") => Format::Q2_K,
        3 => Format::IQ2_XXS,
        _ if name == "output.weight" => Format::Q8_0,
        _ if is(&projections) && !name.contains("indexer") => Format::Q8_0,
        _ => Format::F16,
    }
}

/// Blocks whose values are about as large as [`values`]'.
fn blocks(name: &str, shape: &[u64], format: Format) -> Vec<u8> {
    let (size, count) = (amplitude(name, shape[0]), shape.iter().product::<u64>());
    let half = |value: f64| {
        let mut bytes = Vec::new();
        quant::quantize(Format::F16, &[value as f32], &mut bytes);
        bytes
    };
    let bits = |count| -> Vec<u8> { words(name, count).flat_map(u64::to_le_bytes).collect() };
    let (codes, width, head, tail): (Vec<u8>, _, _, _) = match format {
        Format::Q8_0 => {
            let codes = words(name, count).map(|word| (word >> 56) as u8);
            (codes.collect(), 32, half(size / 127.0), Vec::new())
        }
        Format::IQ2_XXS => (bits(count / 32), 64, half(size / 72.0), Vec::new()),
        Format::Q2_K => {
            let tail = [half(size / 24.0), half(size / 16.0)].concat();
            (bits(count / 256 * 10), 80, Vec::new(), tail)
        }
        _ => panic!("{format} has no formula"),
    };
    let blocks = codes.chunks_exact(width);
    let block = |codes: &[u8]| [&head[..], codes, &tail[..]].concat();
    blocks.flat_map(block).collect()
}

/// Each token's experts: different ones, since the stride is odd and their number a power of two.
fn table(name: &str) -> Vec<i32> {
    let experts = |word: u64| {
        let stride = 2 * ((word >> 32) % (EXPERTS / 2)) + 1;
        (0..CHOSEN).map(move |i| (word.wrapping_add(i * stride) % EXPERTS) as i32)
    };
    words(name, VOCAB).flat_map(experts).collect()
}
