//! `andante inspect`: what is in a model file, without loading it.

use std::collections::BTreeMap;

use andante_gguf::{Array, GgufFile, Value};
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
