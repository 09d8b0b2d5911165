//! The tiny models of `scripts/make_tiny_models.py`: GGUF files built in code, and sequences run through them.

#[path = "words.rs"]
mod words;

use std::collections::BTreeMap;
use std::path::Path;

use andante_compute::{Batch, CpuBackend, CpuConfig, KvType, Logits, WeightForm};
use andante_gguf::{Array, Format, GgufFile, GgufWriter, Value};
use andante_model::{Limits, Model, load};
use words::words;

/// A fixture: everything about a model but its weights, which follow from the tensors' names.
#[derive(serde::Deserialize)]
pub(crate) struct Tiny {
    pub(crate) metadata: BTreeMap<String, serde_json::Value>,
    pub(crate) tensors: BTreeMap<String, Vec<u64>>,
    pub(crate) values: BTreeMap<String, Vec<f32>>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) positions: Vec<usize>,
    pub(crate) logits: Vec<Vec<f32>>,
}

impl Tiny {
    /// Every fixture with its name, in the order of names.
    pub(crate) fn all() -> Vec<(String, Self)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny");
        let mut paths: Vec<_> = folder
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.retain(|path| path.extension().is_some_and(|e| e == "json"));
        paths.sort();
        assert!(!paths.is_empty());
        let read = |path: &std::path::PathBuf| {
            let text = std::fs::read_to_string(path).unwrap();
            (
                path.file_stem().unwrap().to_str().unwrap().to_owned(),
                serde_json::from_str(&text).unwrap(),
            )
        };
        paths.iter().map(read).collect()
    }

    pub(crate) fn named(name: &str) -> Self {
        let found = Self::all().into_iter().find(|(n, _)| n == name);
        found.expect("a fixture of this name").1
    }

    /// The model file, its matrices in `format`; vectors, biases and routers in F32, as converters write them.
    pub(crate) fn gguf(&self, format: Format) -> GgufFile {
        GgufFile::from_bytes(self.gguf_bytes(format)).unwrap()
    }

    pub(crate) fn gguf_bytes(&self, format: Format) -> Vec<u8> {
        let mut writer = GgufWriter::new();
        for (key, value) in &self.metadata {
            writer = writer.metadata(key, metadata_value(value));
        }
        for (name, shape) in &self.tensors {
            let small =
                shape.len() == 1 || name.ends_with(".bias") || name.contains("ffn_gate_inp");
            let format = if small { Format::F32 } else { format };
            writer = writer.tensor_f32(name, shape, format, &weight(name, shape));
        }
        for (name, values) in &self.values {
            writer = writer.tensor_f32(name, &[values.len() as u64], Format::F32, values);
        }
        writer.finish()
    }
}

fn metadata_value(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::String(text) => Value::String(text.clone().into_bytes()),
        serde_json::Value::Bool(flag) => Value::Bool(*flag),
        serde_json::Value::Array(flags) => Value::Array(Array::Bool(
            flags.iter().map(|f| f.as_bool().unwrap()).collect(),
        )),
        number => match number.as_u64() {
            Some(integer) => Value::U32(integer as u32),
            None => Value::F32(number.as_f64().unwrap() as f32),
        },
    }
}

/// Values of a tensor, contiguous dimension first in `shape`; the same arithmetic as the script's `weight`.
fn weight(name: &str, shape: &[u64]) -> Vec<f32> {
    let count: u64 = shape.iter().product();
    let unit = words(name, count).map(|word| (word >> 40) as f32 / (1 << 23) as f32 - 1.0);
    if name.ends_with("norm.weight") {
        return unit.map(|u| 1.0 + 0.25 * u).collect();
    }
    if name.ends_with(".bias") {
        return unit.map(|u| 0.5 * u).collect();
    }
    if name == "token_embd.weight" {
        return unit.collect();
    }
    let gain = if name.contains("attn_q.") || name.contains("attn_k.") {
        12.0
    } else {
        3.0
    };
    let factor = (gain / shape[0] as f64).sqrt() as f32;
    unit.map(|u| u * factor).collect()
}

/// Dequantised weights, F32 activations and KV.
pub(crate) fn reference() -> CpuConfig {
    CpuConfig {
        weights: WeightForm::Reference,
        kv_type: KvType::F32,
        ..CpuConfig::default()
    }
}

/// Quantised weights, int8 activations, F16 KV.
pub(crate) fn quantised(threads: usize) -> CpuConfig {
    CpuConfig {
        threads: Some(threads),
        ..CpuConfig::default()
    }
}

pub(crate) fn model(file: &GgufFile, config: CpuConfig) -> Box<dyn Model> {
    let mut model = load(file, CpuBackend::new(config).unwrap(), &mut |_, _| {}).unwrap();
    model
        .reserve(Limits {
            blocks: 32,
            batch_tokens: 160,
            logit_rows: 160,
            state_rows: 160,
            running_states: 0,
        })
        .unwrap();
    model
}

/// Logits of every row of `tokens`, the first at position 0, run in chunks of the given sizes.
pub(crate) fn run(
    model: &mut dyn Model,
    tokens: &[u32],
    chunks: &[usize],
    table: &[u32],
) -> Vec<Vec<f32>> {
    assert_eq!(chunks.iter().sum::<usize>(), tokens.len());
    let mut rows = Vec::new();
    for &chunk in chunks {
        let start = rows.len();
        let mut batch = Batch::default();
        let block_tokens = model.kv_layout().block_tokens;
        batch.push_sequence(
            &tokens[start..start + chunk],
            start as u32,
            table,
            block_tokens,
            Logits::All,
        );
        model.forward(&batch).unwrap();
        let logits = model.logits().unwrap();
        rows.extend((0..logits.rows()).map(|i| logits.row(i).to_vec()));
    }
    rows
}
