//! The choice of a backend: the only place that knows which ones this program was built with.

use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use andante_compute::{CpuBackend, CpuConfig, WeightForm, laid_out_bytes};
use andante_gguf::GgufFile;
use andante_model::{Model, is_of_experts};
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
    Ok(load_beside(args, precision, &|_, _| {}, |_| ())?.0)
}

/// [`load`], while another thread makes something else of the file. `told` hears the bytes that are loaded, and of how many.
pub(crate) fn load_beside<T: Send>(
    args: &ModelArgs,
    precision: Precision,
    told: &dyn Fn(u64, u64),
    beside: impl FnOnce(&GgufFile) -> T + Send,
) -> Result<(Loaded, T)> {
    let path = Store::from_environment()?.fetch(&args.model)?;
    let start = Instant::now();
    let file = open(&path)?;
    let (model, other) = thread::scope(|scope| {
        let other = scope.spawn(|| beside(&file));
        let model = load_model(&file, &args.compute, precision, told);
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

fn load_model(
    file: &GgufFile,
    args: &ComputeArgs,
    precision: Precision,
    told: &dyn Fn(u64, u64),
) -> Result<Box<dyn Model>> {
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
        told(done, total);
    });
    bar.finish_and_clear();
    Ok(model?)
}

/// Where the weights of a file go.
fn placement(file: &GgufFile, wish: Weights) -> WeightForm {
    match wish {
        Weights::Memory => WeightForm::LaidOut,
        Weights::ExpertsInFile => WeightForm::ExpertsInFile,
        Weights::File => WeightForm::InFile,
        Weights::Auto => {
            let size = Size::of(file);
            let free = footprint::available_bytes();
            let form = free.map_or(WeightForm::LaidOut, |free| size.placed(free));
            let stay = match form {
                WeightForm::ExpertsInFile => "those of experts stay",
                WeightForm::InFile => "they stay",
                _ => return form,
            };
            tracing::warn!(
                "the weights take {:.1} GiB and {:.1} GiB of memory are free: {stay} in the file, and steps read what they use of \
                 it (--weights memory loads them all the same)",
                gib(size.bytes),
                gib(free.unwrap_or_default()),
            );
            form
        }
    }
}

/// What the weights of a file take in memory.
#[derive(Clone, Copy)]
struct Size {
    bytes: u64,
    /// Those of them that are experts'.
    expert_bytes: u64,
}

impl Size {
    fn of(file: &GgufFile) -> Self {
        let mut size = Self {
            bytes: 0,
            expert_bytes: 0,
        };
        for tensor in file.tensors() {
            let bytes = laid_out_bytes(&tensor);
            size.bytes += bytes;
            if is_of_experts(tensor.name) {
                size.expert_bytes += bytes;
            }
        }
        size
    }

    /// Where they go in `free` bytes. The rest is for keys, values and everything else that runs here; where experts are read
    /// from the file, half of it, for the pages of the file that stay in memory while they are of use.
    fn placed(self, free: u64) -> WeightForm {
        let others = self.bytes - self.expert_bytes;
        if self.bytes <= free / 10 * 9 {
            WeightForm::LaidOut
        } else if self.expert_bytes > 0 && others <= free / 2 {
            WeightForm::ExpertsInFile
        } else {
            WeightForm::InFile
        }
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Opens a model file; its errors name it.
pub(crate) fn open(path: &Path) -> Result<GgufFile> {
    Ok(GgufFile::open(path)?)
}

#[cfg(test)]
mod tests {
    use super::{Size, WeightForm};

    #[test]
    fn experts_give_way_first() {
        let size = |bytes, expert_bytes| Size {
            bytes,
            expert_bytes,
        };
        for (size, free, expected) in [
            (size(90, 80), 100, WeightForm::LaidOut),
            (size(91, 80), 100, WeightForm::ExpertsInFile),
            (size(870, 780), 180, WeightForm::ExpertsInFile),
            (size(870, 780), 170, WeightForm::InFile),
            (size(91, 0), 100, WeightForm::InFile),
        ] {
            assert_eq!(size.placed(free), expected, "{free}");
        }
    }
}
