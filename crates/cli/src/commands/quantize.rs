//! `andante quantize`: a model of 16- or 32-bit weights in fewer bits.
//!
//! Tensor by tensor, some rows at a time, so memory does not grow with the model. The file appears under its name only
//! when it is complete.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::thread;

use andante_gguf::{Format, GgufFile, GgufHead, Metadata, PartName, Tensor, Value, quant};
use anyhow::{Context, Result, bail, ensure};

use crate::args::{QuantizeArgs, QuantizeType};
use crate::backend;
use crate::models::Store;
use crate::output::print;
use crate::progress;

/// Values that a thread takes at a time: 4 MiB as 32-bit floats.
const CHUNK: usize = 1 << 20;

/// Writes the quantised file and prints what it holds.
pub(crate) fn run(args: &QuantizeArgs) -> Result<()> {
    let path = Store::from_environment()?.fetch(&args.input)?;
    ensure!(
        !is_same(&path, &args.output),
        "{} is both input and output: give another name for the result",
        path.display()
    );
    let file = backend::open(&path)?;
    let plan =
        plan(&file, args.format).with_context(|| format!("cannot quantize {}", path.display()))?;
    let threads = args
        .threads
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
        .max(1);
    let mut head = GgufHead::new(metadata(&file, args.format));
    for (tensor, format) in &plan {
        head.tensor(tensor.name, tensor.shape, *format);
    }
    let partial = Partial::new(&args.output);
    write(&partial.path, &head, &plan, threads)
        .and_then(|()| partial.finish(&args.output))
        .with_context(|| format!("cannot write {}", args.output.display()))?;
    summarise(&plan)
}

/// Every tensor with the format that it will have.
fn plan(file: &GgufFile, wanted: QuantizeType) -> Result<Vec<(Tensor<'_>, Format)>> {
    let output = ["output.weight", "token_embd.weight"]
        .into_iter()
        .find(|name| file.tensor(name).is_some());
    let mut plan = Vec::new();
    for tensor in file.tensors() {
        let format = if !is_matrix(&tensor) {
            tensor.format
        } else if !matches!(tensor.format, Format::F16 | Format::BF16 | Format::F32) {
            bail!(
                "tensor {} is {} already; start from a file of F16, BF16 or F32 weights",
                tensor.name,
                tensor.format
            );
        } else if output == Some(tensor.name) && wanted != QuantizeType::Q8_0 {
            fit(Format::Q6_K, &tensor)
        } else {
            fit(format_of(wanted), &tensor)
        };
        plan.push((tensor, format));
    }
    ensure!(
        plan.iter().any(|(tensor, format)| tensor.format != *format),
        "it has no matrices"
    );
    Ok(plan)
}

/// Whether it is what quantising is for: a weight that rows are multiplied by. Norms, biases and the routers of experts,
/// which are small and matter much, stay as they are.
fn is_matrix(tensor: &Tensor<'_>) -> bool {
    tensor.rows() > 1
        && tensor.name.ends_with("weight")
        && !tensor.name.ends_with("norm.weight")
        && !tensor.name.ends_with("ffn_gate_inp.weight")
}

fn format_of(wanted: QuantizeType) -> Format {
    match wanted {
        QuantizeType::Q4_0 => Format::Q4_0,
        QuantizeType::Q8_0 => Format::Q8_0,
        QuantizeType::Q4K => Format::Q4_K,
        QuantizeType::Q5K => Format::Q5_K,
        QuantizeType::Q6K => Format::Q6_K,
    }
}

/// The format, or the one that llama.cpp takes instead where rows are not whole blocks of it.
fn fit(format: Format, tensor: &Tensor<'_>) -> Format {
    let whole = |format: Format| tensor.cols().is_multiple_of(format.block_len());
    let smaller = match format {
        Format::Q4_K => Format::Q5_0,
        Format::Q5_K => Format::Q5_1,
        Format::Q6_K => Format::Q8_0,
        other => other,
    };
    match format {
        format if whole(format) => format,
        _ if whole(smaller) => smaller,
        _ => Format::F16,
    }
}

/// The source's, with what llama.cpp says about quantised files (`llama_ftype` in `llama.h`), and no word of parts.
fn metadata(file: &GgufFile, format: QuantizeType) -> Metadata {
    let file_type: u32 = match format {
        QuantizeType::Q4_0 => 2,
        QuantizeType::Q8_0 => 7,
        QuantizeType::Q4K => 14,
        QuantizeType::Q5K => 16,
        QuantizeType::Q6K => 18,
    };
    let mut metadata = Metadata::default();
    for (key, value) in file.metadata().iter() {
        if !key.starts_with("split.") {
            metadata.set(key, value.clone());
        }
    }
    metadata.set("general.file_type", Value::U32(file_type));
    metadata.set("general.quantization_version", Value::U32(2));
    metadata
}

fn write(
    path: &Path,
    head: &GgufHead,
    plan: &[(Tensor<'_>, Format)],
    threads: usize,
) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(&head.bytes())?;
    let bar = progress::bytes(
        plan.iter()
            .map(|(tensor, _)| tensor.data.len() as u64)
            .sum(),
        "quantizing",
    );
    for (tensor, format) in plan {
        if tensor.format == *format {
            out.write_all(tensor.data)?;
        } else {
            write_quantized(&mut out, tensor, *format, threads)?;
        }
        let len = tensor.rows() * format.row_bytes(tensor.cols());
        out.write_all(&vec![0; head.padding(len)])?;
        bar.inc(tensor.data.len() as u64);
    }
    bar.finish_and_clear();
    out.into_inner()?.sync_all()
}

/// The threads take neighbouring runs of rows, which are written in order before they take the next ones.
fn write_quantized(
    out: &mut impl Write,
    tensor: &Tensor<'_>,
    format: Format,
    threads: usize,
) -> io::Result<()> {
    let row_bytes = tensor.format.row_bytes(tensor.cols());
    let run = (CHUNK / tensor.cols()).clamp(1, tensor.rows().div_ceil(threads)) * row_bytes;
    let quantized = |bytes: &[u8]| {
        let mut values = vec![0.0; bytes.len() / row_bytes * tensor.cols()];
        quant::dequantize(tensor.format, bytes, &mut values);
        let mut blocks = Vec::new();
        quant::quantize(format, &values, &mut blocks);
        blocks
    };
    for runs in tensor.data.chunks(run * threads) {
        let blocks: Vec<Vec<u8>> = thread::scope(|scope| {
            let workers: Vec<_> = runs
                .chunks(run)
                .map(|run| scope.spawn(move || quantized(run)))
                .collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("quantising does not panic"))
                .collect()
        });
        for blocks in blocks {
            out.write_all(&blocks)?;
        }
    }
    Ok(())
}

fn summarise(plan: &[(Tensor<'_>, Format)]) -> Result<()> {
    let mut formats: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut before, mut after) = (0, 0);
    for (tensor, format) in plan {
        *formats.entry(format.name()).or_default() += 1;
        before += tensor.data.len();
        after += tensor.rows() * format.row_bytes(tensor.cols());
    }
    let formats: Vec<_> = formats
        .iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    print(format_args!(
        "{:.1} MB became {:.1} MB; tensors: {}\n",
        before as f64 / 1e6,
        after as f64 / 1e6,
        formats.join(", ")
    ))
}

/// Whether the output would replace the input, or another part of a split one.
fn is_same(input: &Path, output: &Path) -> bool {
    let Ok(output) = output.canonicalize() else {
        return false;
    };
    let part = |path: &Path| PartName::parse(path).map(|name| (name.prefix, name.count));
    input.canonicalize().is_ok_and(|input| {
        input == output
            || input.parent() == output.parent()
                && part(&input).is_some_and(|name| part(&output) == Some(name))
    })
}

/// A file that is not complete yet, beside the one that it will be; removed unless it gets there.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn new(target: &Path) -> Self {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        Self {
            path: target.with_file_name(name),
        }
    }

    fn finish(&self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After `finish` there is nothing to remove, and an error on the way out has been reported.
        let _ = fs::remove_file(&self.path);
    }
}
