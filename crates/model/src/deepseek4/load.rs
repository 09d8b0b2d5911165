//! From a file to a model.

use andante_compute::Deepseek4 as Ops;
use andante_gguf::{Format, Tensor};

use super::layout::Layout;
use super::spec::{LayerSpec, Spec};
use super::{Deepseek4, kv_format, mtp, names};
use crate::arch::{EMBEDDING, OUTPUT, OUTPUT_NORM};
use crate::identity;
use crate::loader::{self, Loader};
use crate::metadata::Keys;
use crate::wanted::Wanted;
use crate::{ModelError, ModelInfo};

/// All weights of a model.
pub(super) struct Weights<B: Ops> {
    pub(super) embedding: B::Weight,
    pub(super) layers: Vec<Layer<B>>,
    pub(super) head: Hyper<B>,
    pub(super) output_norm: B::Weight,
    pub(super) output: B::Weight,
    /// A norm without weights is one with ones: `[head_dim]`.
    pub(super) ones: B::Weight,
}

/// The weights of a layer.
pub(super) struct Layer<B: Ops> {
    pub(super) hyper_attn: Hyper<B>,
    pub(super) attn_norm: B::Weight,
    pub(super) q_a: B::Weight,
    pub(super) q_a_norm: B::Weight,
    pub(super) q_b: B::Weight,
    pub(super) kv: B::Weight,
    pub(super) kv_norm: B::Weight,
    pub(super) sinks: B::Weight,
    pub(super) compressor: Option<Compressor<B>>,
    pub(super) indexer: Option<Indexer<B>>,
    pub(super) output_a: B::Weight,
    pub(super) output_b: B::Weight,
    pub(super) hyper_ffn: Hyper<B>,
    pub(super) ffn_norm: B::Weight,
    pub(super) router: B::Weight,
    pub(super) route: Route<B>,
    pub(super) experts: Gated<B>,
    pub(super) shared: Gated<B>,
}

/// How a block reads and writes the streams.
pub(super) struct Hyper<B: Ops> {
    pub(super) mix: B::Weight,
    pub(super) base: B::Weight,
    pub(super) scale: B::Weight,
}

/// What makes compressed rows.
pub(super) struct Compressor<B: Ops> {
    pub(super) kv: B::Weight,
    pub(super) gate: B::Weight,
    pub(super) ape: B::Weight,
    pub(super) norm: B::Weight,
}

/// What chooses compressed rows.
pub(super) struct Indexer<B: Ops> {
    pub(super) q_b: B::Weight,
    pub(super) proj: B::Weight,
    pub(super) compressor: Compressor<B>,
}

/// What chooses experts.
pub(super) enum Route<B: Ops> {
    Table(B::Weight),
    Bias(B::Weight),
}

/// A gated feed-forward layer, or those of all experts.
pub(super) struct Gated<B: Ops> {
    pub(super) gate: B::Weight,
    pub(super) up: B::Weight,
    pub(super) down: B::Weight,
}

/// Builds the model of a file.
///
/// # Errors
/// Metadata or tensors that are missing, contradict each other or have no place in the graph; a weight that the backend refuses.
pub(crate) fn load<B: Ops>(
    keys: &Keys<'_>,
    mut backend: B,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Deepseek4<B>, ModelError> {
    let spec = Spec::read(keys)?;
    // First, so that the pages it touches are released with the weights they belong to.
    let fingerprint = identity::fingerprint(keys.file);
    let layout = Layout::new(&spec, |row, width| backend.kept(row, width));
    let mut loader = Loader::new(keys, &mut backend, progress);
    let weights = weights(&mut loader, &spec)?;
    let mtp = mtp::load(&mut loader, &spec)?;
    loader.refuse_unused()?;
    #[cfg(not(test))]
    drop(mtp);
    let window = |layer: &LayerSpec| layer.ratio.is_none().then_some(spec.window as u32);
    let info = ModelInfo {
        architecture: keys.architecture.to_owned(),
        name: keys.metadata().str("general.name")?.map(str::to_owned),
        vocab: spec.vocab,
        context: spec.context,
        layers: spec.layers.len(),
        hidden: spec.hidden,
        heads: spec.heads,
        kv_heads: 1,
        head_dim: spec.head_dim,
        windows: spec.layers.iter().map(window).collect(),
        parameters: loader::parameters(keys.file),
        weight_bytes: loader.total_bytes,
        backend: backend.describe(),
        kv_format: kv_format(&backend, &spec, &layout),
        pooling: loader::pooling(keys)?,
        row_granule: backend.row_granule(),
    };
    Ok(Deepseek4 {
        layout,
        spec,
        weights,
        backend,
        info,
        fingerprint,
        memory: None,
        wanted: Wanted::default(),
        #[cfg(test)]
        mtp,
        #[cfg(test)]
        trace: None,
    })
}

fn weights<B: Ops>(loader: &mut Loader<'_, B>, spec: &Spec) -> Result<Weights<B>, ModelError> {
    let (hidden, vocab) = (spec.hidden, spec.vocab);
    let ones = 1.0_f32.to_le_bytes().repeat(spec.head_dim);
    let shape = [spec.head_dim as u64];
    let ones = Tensor::new("ones", &shape, Format::F32, &ones);
    Ok(Weights {
        ones: loader.backend.weight(&ones)?,
        embedding: loader.weight(EMBEDDING, &[hidden, vocab])?,
        layers: (0..)
            .zip(&spec.layers)
            .map(|(i, layer)| {
                let prefix = format!("blk.{i}.");
                LayerLoader {
                    loader,
                    spec,
                    prefix,
                }
                .layer(layer)
            })
            .collect::<Result<_, _>>()?,
        head: LayerLoader {
            loader,
            spec,
            prefix: String::new(),
        }
        .hyper("output_hc", spec.hyper.streams, 1)?,
        output_norm: loader.weight(OUTPUT_NORM, &[hidden])?,
        output: loader.weight(OUTPUT, &[hidden, vocab])?,
    })
}

/// Loads what is called so.
pub(super) struct LayerLoader<'l, 'a, B> {
    pub(super) loader: &'l mut Loader<'a, B>,
    pub(super) spec: &'l Spec,
    pub(super) prefix: String,
}

impl<B: Ops> LayerLoader<'_, '_, B> {
    pub(super) fn layer(&mut self, layer: &LayerSpec) -> Result<Layer<B>, ModelError> {
        let spec = self.spec;
        let (hidden, heads, head_dim) = (spec.hidden, spec.heads, spec.head_dim);
        let (width, shared) = (spec.expert_width, spec.shared_width);
        let coefficients = spec.hyper.streams * (2 + spec.hyper.streams);
        let low = spec.groups * spec.group_rank;
        Ok(Layer {
            hyper_attn: self.hyper("hc_attn", coefficients, 3)?,
            attn_norm: self.weight("attn_norm", &[hidden])?,
            q_a: self.weight("attn_q_a", &[hidden, spec.q_rank])?,
            q_a_norm: self.weight("attn_q_a_norm", &[spec.q_rank])?,
            q_b: self.weight("attn_q_b", &[spec.q_rank, heads * head_dim])?,
            kv: self.weight("attn_kv", &[hidden, head_dim])?,
            kv_norm: self.weight("attn_kv_a_norm", &[head_dim])?,
            sinks: self.weight("attn_sinks", &[heads])?,
            compressor: match layer.ratio {
                Some(_) => Some(self.compressor("attn_compressor", layer, head_dim)?),
                None => None,
            },
            indexer: match layer.indexed() {
                true => Some(self.indexer(layer)?),
                false => None,
            },
            output_a: self.groups("attn_output_a")?,
            output_b: self.weight("attn_output_b", &[low, hidden])?,
            hyper_ffn: self.hyper("hc_ffn", coefficients, 3)?,
            ffn_norm: self.weight("ffn_norm", &[hidden])?,
            router: self.weight("ffn_gate_inp", &[hidden, spec.experts])?,
            route: if layer.hashed {
                Route::Table(self.table("ffn_gate_tid2eid")?)
            } else {
                let name = format!("{}exp_probs_b.bias", self.prefix);
                Route::Bias(self.loader.weight(&name, &[spec.experts])?)
            },
            experts: self.gated("exps", width, Some(spec.experts))?,
            shared: self.gated("shexp", shared, None)?,
        })
    }

    /// A block's hyper-connection, with `kinds` kinds of coefficients.
    pub(super) fn hyper(
        &mut self,
        name: &str,
        coefficients: usize,
        kinds: usize,
    ) -> Result<Hyper<B>, ModelError> {
        let wide = self.spec.hyper.streams * self.spec.hidden;
        Ok(Hyper {
            mix: self.weight(&format!("{name}_fn"), &[wide, coefficients])?,
            base: self.weight(&format!("{name}_base"), &[coefficients])?,
            scale: self.weight(&format!("{name}_scale"), &[kinds])?,
        })
    }

    fn compressor(
        &mut self,
        name: &str,
        layer: &LayerSpec,
        width: usize,
    ) -> Result<Compressor<B>, ModelError> {
        let ratio = layer.ratio.expect("a layer with a compressor");
        let (hidden, width) = (self.spec.hidden, width);
        let token = layer.series() * width;
        let ape = self.name(&format!("{name}_ape"));
        let ape = self.loader.checked(&ape, &[token, ratio])?;
        Ok(Compressor {
            kv: self.weight(&format!("{name}_kv"), &[hidden, token])?,
            gate: self.weight(&format!("{name}_gate"), &[hidden, token])?,
            ape: self.loader.take(ape, &[(token * ratio) as u64])?,
            norm: self.weight(&format!("{name}_norm"), &[width])?,
        })
    }

    fn indexer(&mut self, layer: &LayerSpec) -> Result<Indexer<B>, ModelError> {
        let Spec { index, .. } = self.spec;
        let q_shape = [self.spec.q_rank, index.heads * index.width];
        Ok(Indexer {
            q_b: self.weight("indexer.attn_q_b", &q_shape)?,
            proj: self.weight("indexer.proj", &[self.spec.hidden, index.heads])?,
            compressor: self.compressor("indexer_compressor", layer, index.width)?,
        })
    }

    /// The first output projection: a matrix for each group of heads.
    fn groups(&mut self, name: &str) -> Result<B::Weight, ModelError> {
        let spec = self.spec;
        let (groups, rank) = (spec.groups, spec.group_rank);
        let part = spec.heads / groups * spec.head_dim;
        let name = self.name(name);
        let tensor = self.loader.checked(&name, &[part, groups * rank])?;
        let shape = [part, rank, groups].map(|n| n as u64);
        self.loader.take(tensor, &shape)
    }

    /// Each token's experts.
    fn table(&mut self, name: &str) -> Result<B::Weight, ModelError> {
        let (chosen, experts) = (self.spec.chosen, self.spec.experts);
        let name = self.name(name);
        let tensor = self.loader.checked(&name, &[chosen, self.spec.vocab])?;
        let odd = |found: String| ModelError::TensorValue {
            name: name.clone(),
            found,
            expected: format!("I32 from 0 to {}", experts - 1),
        };
        if tensor.format != Format::I32 {
            return Err(odd(tensor.format.to_string()));
        }
        let (ids, _) = tensor.data.as_chunks::<4>();
        let mut values = Vec::with_capacity(tensor.data.len());
        for id in ids.iter().map(|id| i32::from_le_bytes(*id)) {
            if !usize::try_from(id).is_ok_and(|id| id < experts) {
                return Err(odd(id.to_string()));
            }
            values.extend((id as f32).to_le_bytes());
        }
        let floats = Tensor::new(&name, tensor.shape, Format::F32, &values);
        let weight = self.loader.backend.weight(&floats)?;
        self.loader.taken(&tensor);
        Ok(weight)
    }

    fn gated(
        &mut self,
        kind: &str,
        width: usize,
        experts: Option<usize>,
    ) -> Result<Gated<B>, ModelError> {
        let hidden = self.spec.hidden;
        let mut matrix = |name: &str, cols, rows| {
            let shape = [cols, rows, experts.unwrap_or(1)];
            let dims = if experts.is_some() { 3 } else { 2 };
            self.weight(&format!("ffn_{name}_{kind}"), &shape[..dims])
        };
        Ok(Gated {
            gate: matrix("gate", hidden, width)?,
            up: matrix("up", hidden, width)?,
            down: matrix("down", width, hidden)?,
        })
    }

    pub(super) fn weight(&mut self, name: &str, shape: &[usize]) -> Result<B::Weight, ModelError> {
        let name = self.name(name);
        self.loader.weight(&name, shape)
    }

    /// Whether the file has such a tensor.
    pub(super) fn has(&self, name: &str) -> bool {
        self.loader.keys.file.tensor(&self.name(name)).is_some()
    }

    /// What the file calls it.
    pub(super) fn name(&self, name: &str) -> String {
        names::of(self.loader.keys.file, &self.prefix, name)
    }
}
