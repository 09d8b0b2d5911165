//! The choice of a backend: the only place that knows which ones this program was built with.

use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use andante_compute::{CpuBackend, CpuConfig, WeightForm};
use andante_gguf::GgufFile;
use andante_model::Model;
use anyhow::{Context, Result};

use crate::args::{ComputeArgs, ModelArgs, Weights};
use crate::footprint;
use crate::models::Store;
use crate::progress;

/// How precisely a model is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// The file's own formats and integer kernels.
    Fast,
    /// Dequantised weights, 32-bit floats throughout: slow, for comparing runtimes.
    Reference,
}

/// A model in memory and the file it came from.
pub(crate) struct Loaded {
    pub(crate) file: GgufFile,
    pub(crate) model: Box<dyn Model>,
    /// The model's name for clients: its file name without the ending.
    pub(crate) name: String,
    /// How long it took, a download not counted.
    pub(crate) load_time: Duration,
}

/// Fetches the model if need be and loads it, with a progress bar.
pub(crate) fn load(args: &ModelArgs, precision: Precision) -> Result<Loaded> {
    Ok(load_beside(args, precision, |_| ())?.0)
}

/// [`load`], while another thread makes something else of the file.
pub(crate) fn load_beside<T: Send>(
    args: &ModelArgs,
    precision: Precision,
    beside: impl FnOnce(&GgufFile) -> T + Send,
) -> Result<(Loaded, T)> {
    let path = Store::from_environment()?.fetch(&args.model)?;
    let start = Instant::now();
    let file = open(&path)?;
    let (model, other) = thread::scope(|scope| {
        let other = scope.spawn(|| beside(&file));
        let model = load_model(&file, &args.compute, precision);
        (
            model,
            other.join().unwrap_or_else(|panic| resume_unwind(panic)),
        )
    });
    let model = model.with_context(|| format!("cannot load {}", path.display()))?;
    let name = path
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let load_time = start.elapsed();
    let loaded = Loaded {
        file,
        model,
        name,
        load_time,
    };
    Ok((loaded, other))
}

fn load_model(file: &GgufFile, args: &ComputeArgs, precision: Precision) -> Result<Box<dyn Model>> {
    let weights = match precision {
        Precision::Fast => placement(file, args.weights),
        Precision::Reference => WeightForm::Reference,
    };
    let backend = CpuBackend::new(CpuConfig {
        threads: args.threads,
        bound: args.bind_threads,
        kv_type: args.kv_type.into(),
        weights,
        ..CpuConfig::default()
    })?;
    let bar = progress::bytes(0, "loading");
    let model = andante_model::load(file, backend, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    Ok(model?)
}

/// Where the weights of a file go.
fn placement(file: &GgufFile, wish: Weights) -> WeightForm {
    let bytes: u64 = file.tensors().map(|tensor| tensor.data.len() as u64).sum();
    let free = footprint::available_bytes();
    match wish {
        Weights::Memory => WeightForm::LaidOut,
        Weights::File => WeightForm::InFile,
        // The rest is for keys, values and everything else that runs here.
        Weights::Auto if free.is_some_and(|free| bytes > free / 10 * 9) => {
            tracing::warn!(
                "the weights take {:.1} GiB and {:.1} GiB of memory are free: they stay in the file, and every step reads it \
                 (--weights memory loads them all the same)",
                gib(bytes),
                gib(free.unwrap_or_default()),
            );
            WeightForm::InFile
        }
        Weights::Auto => WeightForm::LaidOut,
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Opens a model file; its errors name it.
pub(crate) fn open(path: &Path) -> Result<GgufFile> {
    Ok(GgufFile::open(path)?)
}
