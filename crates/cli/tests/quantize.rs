//! `andante quantize` on the first layers of a real model, widened to F16.

#[path = "support/program.rs"]
mod program;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use andante_gguf::{Format, GgufFile, GgufHead, Metadata, Value, quant};

use program::{andante, stdout};

const LAYERS: u32 = 3;

fn refusal(args: &[&str]) -> String {
    let output = andante(args);
    assert!(!output.status.success(), "{args:?} went well");
    String::from_utf8(output.stderr).unwrap()
}

/// The default model's first layers with matrices of F16.
fn source(folder: &Path) -> PathBuf {
    let fetched = stdout(&["pull"]);
    let file = GgufFile::open(Path::new(fetched.trim())).unwrap();
    let mut metadata = Metadata::default();
    for (key, value) in file.metadata().iter() {
        metadata.set(key, value.clone());
    }
    metadata.set("llama.block_count", Value::U32(LAYERS));
    let layer = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse().ok();
    let tensors: Vec<_> = file
        .tensors()
        .filter(|tensor| layer(tensor.name).is_none_or(|layer: u32| layer < LAYERS))
        .map(|tensor| {
            (
                tensor,
                if tensor.shape.len() > 1 {
                    Format::F16
                } else {
                    Format::F32
                },
            )
        })
        .collect();
    let mut head = GgufHead::new(metadata);
    for (tensor, format) in &tensors {
        head.tensor(tensor.name, tensor.shape, *format);
    }
    let mut bytes = head.bytes();
    for (tensor, format) in &tensors {
        let before = bytes.len();
        quant::quantize(*format, &tensor.dequantize(), &mut bytes);
        bytes.resize(bytes.len() + head.padding(bytes.len() - before), 0);
    }
    let path = folder.join("source.gguf");
    fs::write(&path, bytes).unwrap();
    path
}

/// Logits of some positions of a fixed sequence.
fn logits(folder: &Path, model: &str) -> Vec<f32> {
    let (ids, output) = (folder.join("ids"), folder.join("logits"));
    let tokens = (0..48i32).flat_map(|i| (1000 + i * 7919 % 40_000).to_le_bytes());
    fs::write(&ids, tokens.collect::<Vec<_>>()).unwrap();
    let (ids, output) = (ids.to_str().unwrap(), output.to_str().unwrap());
    stdout(&[
        "logits",
        ids,
        output,
        "-m",
        model,
        "--positions",
        "0,7,20-23,47",
    ]);
    let bytes = fs::read(output).unwrap();
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect()
}

/// The root mean square of the difference over that of the expected values.
fn error(values: &[f32], expected: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let errors: f64 = values
        .iter()
        .zip(expected)
        .map(|(x, y)| square(x - y))
        .sum();
    (errors / expected.iter().map(|&x| square(x)).sum::<f64>()).sqrt()
}

fn formats(file: &GgufFile) -> BTreeMap<&str, Format> {
    file.tensors()
        .map(|tensor| (tensor.name, tensor.format))
        .collect()
}

#[test]
fn a_quantized_model_is_loaded_and_answers_nearly_as_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let source_name = source.to_str().unwrap();
    let expected = logits(folder.path(), source_name);
    let target = folder.path().join("target.gguf");
    let target_name = target.to_str().unwrap();
    // Rows of 576 are not whole blocks of 256: those of ffn_down, 1536, are.
    for (name, file_type, narrow, wide, output, tolerance) in [
        ("q8_0", 7, Format::Q8_0, Format::Q8_0, Format::Q8_0, 0.02),
        ("Q6_K", 18, Format::Q8_0, Format::Q6_K, Format::Q8_0, 0.02),
        ("q5_k_m", 16, Format::Q5_1, Format::Q5_K, Format::Q8_0, 0.1),
        ("Q4_K", 14, Format::Q5_0, Format::Q4_K, Format::Q8_0, 0.1),
        ("q4_0", 2, Format::Q4_0, Format::Q4_0, Format::Q8_0, 0.2),
    ] {
        let shown = stdout(&["quantize", source_name, target_name, "--type", name]);
        assert!(shown.contains(&format!("{narrow}")), "{shown}");

        let (from, to) = (
            GgufFile::open(&source).unwrap(),
            GgufFile::open(&target).unwrap(),
        );
        for (key, value) in from
            .metadata()
            .iter()
            .filter(|(key, _)| *key != "general.file_type")
        {
            assert_eq!(to.metadata().get(key), Some(value), "{key}");
        }
        assert_eq!(
            to.metadata().get("general.file_type"),
            Some(&Value::U32(file_type))
        );
        assert_eq!(
            to.metadata().get("general.quantization_version"),
            Some(&Value::U32(2))
        );
        let formats = formats(&to);
        assert_eq!(formats.len(), from.tensors().count());
        assert_eq!(formats["blk.0.attn_q.weight"], narrow);
        assert_eq!(formats["blk.2.ffn_down.weight"], wide);
        assert_eq!(formats["token_embd.weight"], output);
        assert_eq!(
            to.tensor("blk.1.attn_norm.weight").unwrap().data,
            from.tensor("blk.1.attn_norm.weight").unwrap().data
        );

        let error = error(&logits(folder.path(), target_name), &expected);
        assert!(error > 1e-4 && error < tolerance, "{name}: {error}");
    }
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 4, "no partial file stays: {left:?}");
}

#[test]
fn what_cannot_be_quantized_is_refused_and_nothing_written() {
    let folder = tempfile::tempdir().unwrap();
    let model = stdout(&["pull"]);
    let target = folder.path().join("target.gguf");
    let target = target.to_str().unwrap();

    let message = refusal(&["quantize", model.trim(), target, "--type", "q8_0"]);
    assert!(
        message.contains("token_embd.weight is Q8_0 already; start from"),
        "{message}"
    );

    let message = refusal(&["quantize", model.trim(), model.trim(), "--type", "q8_0"]);
    assert!(message.contains("is both input and output"), "{message}");

    let message = refusal(&["quantize", model.trim(), target, "--type", "q9"]);
    assert!(message.contains("q4_k"), "{message}");

    let small = folder.path().join("small.gguf");
    let ramp: Vec<f32> = (0..256).map(|i| i as f32).collect();
    let writer =
        andante_gguf::GgufWriter::new().tensor_f32("a.weight", &[64, 4], Format::F32, &ramp);
    fs::write(&small, writer.finish()).unwrap();
    let nowhere = folder.path().join("missing/target.gguf");
    let message = refusal(&[
        "quantize",
        small.to_str().unwrap(),
        nowhere.to_str().unwrap(),
        "--type",
        "q4_k",
    ]);
    assert!(
        message.contains("cannot write") && message.contains("missing/target.gguf"),
        "{message}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
