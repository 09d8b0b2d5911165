//! `andante inspect`: what is in a model file, without loading it.

use std::collections::BTreeMap;

use andante_compute::{CpuConfig, Peak, laid_out_bytes};
use andante_gguf::{Array, GgufFile, Value};
use andante_model::{KvLayout, Outline};
use anyhow::Result;

use crate::args::InspectArgs;
use crate::backend;
use crate::models::Store;
use crate::output::print;

/// Longest metadata value that is shown whole without `--all`, in characters.
const SHORT: usize = 100;

/// Prints a summary, the metadata and, with `--all`, every tensor.
pub(crate) fn run(args: &InspectArgs) -> Result<()> {
    let path = Store::from_environment()?.fetch(&args.model)?;
    let file = backend::open(&path)?;
    print(format_args!("{}\n", path.display()))?;
    print_formats(&file)?;
    match andante_model::outline(&file) {
        Ok(outline) => print_outline(&file, &outline, args)?,
        Err(error) => print(format_args!("\ncannot be run: {error}\n"))?,
    }
    print(format_args!(
        "\nmetadata ({} keys)\n",
        file.metadata().len()
    ))?;
    for (key, value) in file.metadata().iter() {
        print(format_args!("  {key:44} {}\n", describe(value, args.all)))?;
    }
    if args.all {
        print(format_args!("\ntensors\n"))?;
        for tensor in file.tensors() {
            print(format_args!(
                "  {:44} {:6} {:?}\n",
                tensor.name,
                tensor.format.name(),
                tensor.shape
            ))?;
        }
    }
    Ok(())
}

fn print_formats(file: &GgufFile) -> Result<()> {
    let mut formats: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    for tensor in file.tensors() {
        let (tensors, weights, bytes) = formats.entry(tensor.format.name()).or_default();
        *tensors += 1;
        *weights += tensor.len();
        *bytes += tensor.data.len();
    }
    let weights: usize = formats.values().map(|row| row.1).sum();
    let bytes: usize = formats.values().map(|row| row.2).sum();
    let bits = 8.0 * bytes as f64 / weights.max(1) as f64;
    let (millions, mega) = (weights as f64 / 1e6, bytes as f64 / 1e6);
    print(format_args!(
        "GGUF v{}, {millions:.1} M weights in {mega:.1} MB ({bits:.2} bits each)\n",
        file.version()
    ))?;
    for (name, (tensors, weights, bytes)) in formats {
        let (millions, mega) = (weights as f64 / 1e6, bytes as f64 / 1e6);
        print(format_args!(
            "  {name:6} {tensors:5} tensors {millions:9.1} M weights {mega:9.1} MB\n"
        ))?;
    }
    Ok(())
}

/// What the model would be and take.
fn print_outline(file: &GgufFile, outline: &Outline, args: &InspectArgs) -> Result<()> {
    print(format_args!("\nlayers\n"))?;
    for (kind, count) in &outline.layers {
        print(format_args!("  {count:5} with {kind}\n"))?;
    }
    let weights: u64 = file.tensors().map(|tensor| laid_out_bytes(&tensor)).sum();
    print(format_args!(
        "\nmemory\n{:12.1} MB weights\n",
        mega(weights)
    ))?;
    for (kv_type, layout) in &outline.kv {
        print_sequences(kv_type, layout, (outline.context, weights), args)?;
    }
    let read = outline.token_bytes;
    print(format_args!(
        "\ngeneration\n{:12.1} MB of weights read for a token\n",
        mega(read)
    ))?;
    if args.speed {
        let peak = Peak::measure(&CpuConfig::default())?;
        let (speed, most) = (peak.read_bytes_per_s, peak.read_bytes_per_s / read as f64);
        print(format_args!(
            "{:12.1} GB/s is what this machine reads\n{most:12.1} tokens/s at most, at the beginning of a context\n",
            speed / 1e9
        ))?;
    }
    Ok(())
}

/// The memory of sequences, and of all.
fn print_sequences(
    kv_type: &str,
    layout: &KvLayout,
    (context, weights): (u32, u64),
    args: &InspectArgs,
) -> Result<()> {
    let context = args.ctx.unwrap_or(context);
    let blocks = u64::from(context.div_ceil(layout.block_tokens));
    let of_session = blocks * layout.block_bytes + layout.state_bytes;
    let of_token = layout.block_bytes as f64 / f64::from(layout.block_tokens);
    let all = weights + u64::from(args.sessions) * of_session;
    print(format_args!(
        "with --kv-type {kv_type}\n\
         {:12.3} kB for a token of context\n\
         {:12.1} MB for a session's running state\n\
         {:12.1} MB for a session of {context} tokens\n\
         {:12.1} MB for {} such and the weights\n",
        of_token / 1e3,
        mega(layout.state_bytes),
        mega(of_session),
        mega(all),
        args.sessions,
    ))?;
    Ok(())
}

fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn describe(value: &Value, whole: bool) -> String {
    let text = match value {
        Value::String(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Value::Array(array) => describe_array(array, whole),
        Value::U8(v) => v.to_string(),
        Value::I8(v) => v.to_string(),
        Value::U16(v) => v.to_string(),
        Value::I16(v) => v.to_string(),
        Value::U32(v) => v.to_string(),
        Value::I32(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::F32(v) => v.to_string(),
        Value::F64(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
    };
    if whole || text.chars().count() <= SHORT {
        return text;
    }
    text.chars().take(SHORT).chain("…".chars()).collect()
}

fn describe_array(array: &Array, whole: bool) -> String {
    let head = format!("{} × {:?}", array.len(), array.element_type());
    match array {
        Array::String(strings) => {
            let shown = if whole { strings.len() } else { 4 };
            let items: Vec<_> = strings
                .iter()
                .take(shown)
                .map(String::from_utf8_lossy)
                .collect();
            format!("{head} {items:?}")
        }
        _ if whole || array.len() <= 8 => format!("{head} {array:?}"),
        _ => head,
    }
}
