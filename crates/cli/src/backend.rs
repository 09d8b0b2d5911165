//! The choice of a backend: the only place that knows which ones this program was built with.

use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use andante_compute::{CpuBackend, CpuConfig, KvType};
use andante_gguf::GgufFile;
use andante_model::Model;
use anyhow::{Context, Result};

use crate::args::{self, ModelArgs};
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
        let model = load_model(&file, args, precision);
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

fn load_model(file: &GgufFile, args: &ModelArgs, precision: Precision) -> Result<Box<dyn Model>> {
    let reference = precision == Precision::Reference;
    let kv_type = match args.kv_type {
        _ if reference => KvType::F32,
        args::KvType::F16 => KvType::F16,
        args::KvType::F32 => KvType::F32,
    };
    let backend = CpuBackend::new(CpuConfig {
        threads: args.threads,
        bound: args.bind_threads,
        kv_type,
        reference,
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

/// Opens a model file; its errors name it.
pub(crate) fn open(path: &Path) -> Result<GgufFile> {
    Ok(GgufFile::open(path)?)
}
