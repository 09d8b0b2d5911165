//! The CPU backend: threads, vector kernels, and the memory they work in.

mod attention;
mod deepseek4;
mod experts;
mod isa;
mod kv;
mod matmul;
mod memory;
mod ops;
mod peak;
mod pool;
mod processors;
mod rotation;
mod simd;

pub use deepseek4::{CpuChoices, CpuRecords};
pub use isa::{Isa, Level};
pub use kv::{CpuKv, KvType};
pub use matmul::{WeightForm, laid_out_bytes};
pub use memory::CpuBuffer;
pub use peak::Peak;

use crate::ComputeError;
use andante_gguf::Tensor;
use attention::AttentionScratch;
use deepseek4::{GroupedScratch, IndexScratch, WindowScratch};
use experts::ExpertsScratch;
use matmul::Matrix;
use memory::Arena;
use pool::{Pool, STRIP};
use rotation::Angles;

/// What a CPU backend is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuConfig {
    /// Threads that compute, the caller's included; as many as there are cores when `None`.
    pub threads: Option<usize>,
    /// Each thread keeps to a core, instead of where the system puts it.
    pub bound: bool,
    /// How keys and values are stored.
    pub kv_type: KvType,
    /// Where and how matrices are kept; with [`WeightForm::Reference`], keys and values are `f32` too.
    pub weights: WeightForm,
    /// Instructions to use; the best the machine has when `None`.
    pub isa: Option<Isa>,
}

impl CpuConfig {
    fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(processors::cores)
    }
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self {
            threads: None,
            bound: false,
            kv_type: KvType::F16,
            weights: WeightForm::LaidOut,
            isa: None,
        }
    }
}

/// This machine's processor. Runs every op at once, on the calling thread and the pool's.
pub struct CpuBackend {
    isa: Isa,
    pool: Pool,
    kv_type: KvType,
    weights: WeightForm,
    arena: Arena,
    products: matmul::Scratch,
    attention: AttentionScratch,
    experts: ExpertsScratch,
    grouped: GroupedScratch,
    index: IndexScratch,
    window: WindowScratch,
    angles: Angles,
}

impl CpuBackend {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`ComputeError::Thread`] when the system gives none.
    pub fn new(config: CpuConfig) -> Result<Self, ComputeError> {
        Ok(Self {
            isa: config.isa.unwrap_or_else(Isa::detect),
            pool: Pool::new(config.thread_count(), config.bound)?,
            kv_type: if config.weights == WeightForm::Reference {
                KvType::F32
            } else {
                config.kv_type
            },
            weights: config.weights,
            arena: Arena::default(),
            products: matmul::Scratch::default(),
            attention: AttentionScratch::default(),
            experts: ExpertsScratch::default(),
            grouped: GroupedScratch::default(),
            index: IndexScratch::default(),
            window: WindowScratch::default(),
            angles: Angles::default(),
        })
    }
}

/// A weight of a model.
pub enum CpuWeight {
    /// One-dimensional: norms and biases.
    Vector(Vec<f32>),
    /// Two-dimensional: what rows are multiplied by.
    #[expect(private_interfaces, reason = "opaque: only the backend looks inside")]
    Matrix(Matrix),
}

impl CpuWeight {
    fn load(
        memory: (&Pool, &mut Arena),
        tensor: &Tensor<'_>,
        weights: WeightForm,
    ) -> Result<Self, ComputeError> {
        // The third dimension is the expert; each one's rows have to be whole strips.
        if let &[_, rows, _, ..] = tensor.shape
            && !rows.is_multiple_of(STRIP as u64)
        {
            return Err(ComputeError::ExpertRows {
                tensor: tensor.name.to_owned(),
                rows,
                multiple: STRIP as u64,
            });
        }
        Ok(if tensor.shape.len() <= 1 {
            Self::Vector(tensor.dequantize())
        } else {
            Self::Matrix(Matrix::load(memory, tensor, weights)?)
        })
    }

    fn vector(&self) -> &[f32] {
        match self {
            Self::Vector(values) => values,
            Self::Matrix(_) => panic!("a norm or bias is one-dimensional"),
        }
    }

    fn matrix(&self) -> &Matrix {
        match self {
            Self::Matrix(matrix) => matrix,
            Self::Vector(_) => panic!("a product needs a two-dimensional weight"),
        }
    }
}

#[cfg(test)]
mod tests;
