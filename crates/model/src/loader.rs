//! From a file to a model: the architecture table, then every tensor with its shape checked.

use std::collections::BTreeSet;

use andante_compute::{Backend, Deepseek4};
use andante_gguf::{GgufFile, Tensor};

use crate::arch::{self, EMBEDDING, OUTPUT, OUTPUT_NORM, ROPE_FACTORS};
use crate::decoder::{Decoder, FeedForwardWeights, Layer, Weights};
use crate::deepseek4;
use crate::identity;
use crate::metadata::Keys;
use crate::spec::{DecoderSpec, FeedForward};
use crate::{Model, ModelError, ModelInfo, Pooling};

/// Builds the model in `file` on `backend`. `progress` hears the bytes of weights loaded so far and in total.
///
/// # Errors
/// An unknown architecture; metadata or tensors that are missing, contradict each other or have no place in the architecture; a
/// weight that the backend refuses.
pub fn load<B: Deepseek4>(
    file: &GgufFile,
    backend: B,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Box<dyn Model>, ModelError> {
    let keys = Keys::new(file)?;
    match keys.architecture {
        arch::DEEPSEEK4 => Ok(Box::new(deepseek4::load(&keys, backend, progress)?)),
        _ => Ok(Box::new(load_decoder(&keys, backend, progress)?)),
    }
}

fn load_decoder<B: Backend>(
    keys: &Keys<'_>,
    mut backend: B,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Decoder<B>, ModelError> {
    let file = keys.file;
    let spec = arch::decoder_spec(keys)?;
    // First, so that the pages it touches are released with the weights they belong to.
    let fingerprint = identity::fingerprint(file);
    let mut loader = Loader::new(keys, &mut backend, progress);
    let weights = loader.weights(&spec)?;
    loader.refuse_unused()?;
    let info = ModelInfo {
        architecture: keys.architecture.to_owned(),
        name: file.metadata().str("general.name")?.map(str::to_owned),
        vocab: spec.vocab,
        context: spec.context,
        layers: spec.layers.len(),
        hidden: spec.hidden,
        heads: spec.heads,
        kv_heads: spec.kv_heads,
        head_dim: spec.head_dim,
        windows: spec.layers.iter().map(|layer| layer.window).collect(),
        parameters: parameters(file),
        weight_bytes: loader.total_bytes,
        backend: backend.describe(),
        kv_format: backend.kv_format(&spec.kv_shape()),
        pooling: pooling(keys)?,
        row_granule: backend.row_granule(),
    };
    Ok(Decoder::new(spec, weights, backend, (info, fingerprint)))
}

/// Whether a tensor holds the matrices of all experts of a layer, by its name in the file.
pub fn is_of_experts(name: &str) -> bool {
    name.ends_with("_exps.weight")
}

/// Number of weights in a file.
pub(crate) fn parameters(file: &GgufFile) -> u64 {
    tensors(file).map(|t| t.shape.iter().product::<u64>()).sum()
}

/// llama.cpp's `pooling_type`: 0 is none.
pub(crate) fn pooling(keys: &Keys<'_>) -> Result<Option<Pooling>, ModelError> {
    Ok(match keys.u32("pooling_type")? {
        Some(1) => Some(Pooling::Mean),
        Some(2) => {
            let expected =
                "1 (mean) or 3 (last), since its first token knows nothing of the others";
            return Err(keys.refuse("pooling_type", "2 (cls)", expected));
        }
        Some(3) => Some(Pooling::Last),
        _ => None,
    })
}

/// All tensors of a file but the RoPE factors, which are part of the spec.
fn tensors(file: &GgufFile) -> impl Iterator<Item = Tensor<'_>> {
    file.tensors().filter(|tensor| tensor.name != ROPE_FACTORS)
}

/// Takes a file's tensors over, each once, and knows which ones are left.
pub(crate) struct Loader<'a, B> {
    pub(crate) keys: &'a Keys<'a>,
    pub(crate) backend: &'a mut B,
    progress: &'a mut dyn FnMut(u64, u64),
    loaded: BTreeSet<String>,
    loaded_bytes: u64,
    pub(crate) total_bytes: u64,
}

impl<'a, B: Backend> Loader<'a, B> {
    pub(crate) fn new(
        keys: &'a Keys<'a>,
        backend: &'a mut B,
        progress: &'a mut dyn FnMut(u64, u64),
    ) -> Self {
        let total_bytes = tensors(keys.file).map(|t| t.data.len() as u64).sum();
        Self {
            keys,
            backend,
            progress,
            loaded: BTreeSet::new(),
            loaded_bytes: 0,
            total_bytes,
        }
    }

    fn weights(&mut self, spec: &DecoderSpec) -> Result<Weights<B>, ModelError> {
        let (hidden, vocab) = (spec.hidden, spec.vocab);
        let embedding = self.weight(EMBEDDING, &[hidden, vocab])?;
        let layers = (0..spec.layers.len())
            .map(|i| {
                LayerLoader {
                    loader: self,
                    spec,
                    prefix: format!("blk.{i}."),
                }
                .layer()
            })
            .collect::<Result<_, _>>()?;
        let output_norm = self.weight(OUTPUT_NORM, &[hidden])?;
        let output = match self.keys.file.tensor(OUTPUT) {
            Some(_) => Some(self.weight(OUTPUT, &[hidden, vocab])?),
            None => None,
        };
        Ok(Weights {
            embedding,
            layers,
            output_norm,
            output,
        })
    }

    pub(crate) fn weight(&mut self, name: &str, shape: &[usize]) -> Result<B::Weight, ModelError> {
        let tensor = self.checked(name, shape)?;
        // The biases of all experts make one vector, as a backend wants them.
        let len = [tensor.shape.iter().product()];
        let seen = if name.ends_with(".bias") {
            &len
        } else {
            tensor.shape
        };
        self.take(tensor, seen)
    }

    /// Takes over a tensor, to be seen as of this shape.
    pub(crate) fn take(
        &mut self,
        tensor: Tensor<'_>,
        shape: &[u64],
    ) -> Result<B::Weight, ModelError> {
        let mut seen = tensor;
        seen.shape = shape;
        let weight = if is_of_experts(tensor.name) {
            self.backend.expert_weight(&seen)?
        } else {
            self.backend.weight(&seen)?
        };
        self.taken(&tensor);
        Ok(weight)
    }

    /// Notes that a tensor has been taken over.
    pub(crate) fn taken(&mut self, tensor: &Tensor<'_>) {
        tensor.release(0..tensor.rows());
        self.loaded_bytes += tensor.data.len() as u64;
        (self.progress)(self.loaded_bytes, self.total_bytes);
        self.loaded.insert(tensor.name.to_owned());
    }

    /// A tensor that must be there and have this shape.
    pub(crate) fn checked(&self, name: &str, shape: &[usize]) -> Result<Tensor<'a>, ModelError> {
        let missing = || ModelError::MissingTensor {
            name: name.to_owned(),
        };
        let tensor = self.keys.file.tensor(name).ok_or_else(missing)?;
        let expected: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
        if tensor.shape != expected {
            let found = tensor.shape.to_vec();
            return Err(ModelError::TensorShape {
                name: name.to_owned(),
                expected,
                found,
            });
        }
        Ok(tensor)
    }

    pub(crate) fn refuse_unused(&self) -> Result<(), ModelError> {
        let used = |name: &str| name == ROPE_FACTORS || self.loaded.contains(name);
        match self.keys.file.tensors().find(|tensor| !used(tensor.name)) {
            None => Ok(()),
            Some(tensor) => Err(ModelError::UnusedTensor {
                name: tensor.name.to_owned(),
                architecture: self.keys.architecture.to_owned(),
            }),
        }
    }
}

struct LayerLoader<'l, 'a, B> {
    loader: &'l mut Loader<'a, B>,
    spec: &'l DecoderSpec,
    prefix: String,
}

impl<B: Backend> LayerLoader<'_, '_, B> {
    fn layer(&mut self) -> Result<Layer<B>, ModelError> {
        let &DecoderSpec {
            hidden,
            feed_forward_width: width,
            heads,
            kv_heads,
            head_dim,
            ..
        } = self.spec;
        let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);
        let names = self.spec.tensors;
        Ok(Layer {
            attn_norm: self.weight(names.attn_norm, &[hidden])?,
            q: self.weight(names.q, &[hidden, q_width])?,
            k: self.weight(names.k, &[hidden, kv_width])?,
            v: self.weight(names.v, &[hidden, kv_width])?,
            q_bias: self.optional(names.q_bias, &[q_width])?,
            k_bias: self.optional(names.k_bias, &[kv_width])?,
            v_bias: self.optional(names.v_bias, &[kv_width])?,
            q_norm: self.optional(names.q_norm, &[head_dim])?,
            k_norm: self.optional(names.k_norm, &[head_dim])?,
            attn_output: self.weight(names.attn_output, &[q_width, hidden])?,
            attn_output_bias: self.optional(names.attn_output_bias, &[hidden])?,
            sinks: self.optional(names.sinks, &[heads])?,
            attn_post_norm: self.optional(names.attn_post_norm, &[hidden])?,
            ffn_norm: self.weight(names.ffn_norm, &[hidden])?,
            feed_forward: match self.spec.feed_forward {
                FeedForward::Dense(_) => FeedForwardWeights::Dense {
                    gate: self.weight(names.gate, &[hidden, width])?,
                    up: self.weight(names.up, &[hidden, width])?,
                    down: self.weight(names.down, &[width, hidden])?,
                },
                FeedForward::Experts(spec) => self.experts(spec.experts)?,
            },
            ffn_post_norm: self.optional(names.ffn_post_norm, &[hidden])?,
        })
    }

    fn experts(&mut self, count: usize) -> Result<FeedForwardWeights<B>, ModelError> {
        let &DecoderSpec {
            hidden,
            feed_forward_width: width,
            tensors,
            ..
        } = self.spec;
        let names = tensors.experts;
        Ok(FeedForwardWeights::Experts {
            router: self.weight(names.router, &[hidden, count])?,
            router_bias: self.optional(names.router_bias, &[count])?,
            gate: self.weight(tensors.gate, &[hidden, width, count])?,
            up: self.weight(tensors.up, &[hidden, width, count])?,
            down: self.weight(tensors.down, &[width, hidden, count])?,
            gate_bias: self.optional(names.gate_bias, &[width, count])?,
            up_bias: self.optional(names.up_bias, &[width, count])?,
            down_bias: self.optional(names.down_bias, &[hidden, count])?,
        })
    }

    fn weight(&mut self, name: &str, shape: &[usize]) -> Result<B::Weight, ModelError> {
        self.loader.weight(&format!("{}{name}", self.prefix), shape)
    }

    fn optional(
        &mut self,
        name: Option<&str>,
        shape: &[usize],
    ) -> Result<Option<B::Weight>, ModelError> {
        name.map(|name| self.weight(name, shape)).transpose()
    }
}
