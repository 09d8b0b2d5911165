//! The facts of a DeepSeek V4 file.

use andante_compute::{
    Activation, BLOCK_TOKENS, ExpertsSpec, HyperSpec, RopeScaling, RopeSpec, RopeStyle, RopeTable,
    RouteSpec,
};
use andante_gguf::Value;

use super::mtp::{self, MtpSpec};
use crate::ModelError;
use crate::arch::base::{self, MOST};
use crate::metadata::Keys;

/// The ratio of the compressors that overlap and whose rows an indexer chooses from (CSA); all others are plain (HCA).
const INDEXED_RATIO: usize = 4;

const RATIOS: &str = "attention.compress_ratios";

/// More tokens than a block of any model has.
const MOST_BLOCK_TOKENS: usize = 4096;

/// llama.cpp's number for `sqrt(softplus(x))`.
const SQRT_SOFTPLUS: u32 = 4;

/// Everything the graph needs to know about a model.
#[derive(Debug)]
pub(super) struct Spec {
    /// Trained context length in tokens.
    pub(super) context: u32,
    /// Number of token ids.
    pub(super) vocab: usize,
    /// Width of a stream of the residual.
    pub(super) hidden: usize,
    /// The streams.
    pub(super) hyper: HyperSpec,
    /// Query heads.
    pub(super) heads: usize,
    /// Width of a head, and of the one key that all heads share.
    pub(super) head_dim: usize,
    /// Width between the two query projections.
    pub(super) q_rank: usize,
    /// Groups of heads in the output projection.
    pub(super) groups: usize,
    /// Width of a group between the two output projections.
    pub(super) group_rank: usize,
    /// Positions that a row sees uncompressed, its own included.
    pub(super) window: usize,
    /// The indexer's dimensions.
    pub(super) index: IndexDims,
    /// Experts; the activation is a layer's.
    pub(super) experts: usize,
    /// Experts that work on a row.
    pub(super) chosen: usize,
    /// Width of an expert's inner layer.
    pub(super) expert_width: usize,
    /// Width of the shared expert's inner layer.
    pub(super) shared_width: usize,
    /// What experts' results are multiplied by.
    pub(super) route: RouteSpec,
    /// Epsilon of every RMS norm.
    pub(super) eps: f32,
    /// Rotation in layers without compressor, and in those with one.
    pub(super) ropes: [Ropes; 2],
    /// What differs from layer to layer.
    pub(super) layers: Vec<LayerSpec>,
    /// Tokens of a block: as many as make whole compressed rows of every layer.
    pub(super) block_tokens: usize,
    /// The block that predicts one token further.
    pub(super) mtp: Option<MtpSpec>,
}

/// The indexer's dimensions.
#[derive(Debug, Clone, Copy)]
pub(super) struct IndexDims {
    pub(super) heads: usize,
    pub(super) width: usize,
    pub(super) top_k: usize,
}

/// The rotations of a layer.
#[derive(Debug)]
pub(super) struct Ropes {
    /// Of queries, keys and compressed rows.
    pub(super) forward: RopeTable,
    /// Of attention's output, whose values are keys: back.
    pub(super) back: RopeTable,
    /// Of the indexer's queries and rows.
    pub(super) index: RopeTable,
}

/// What differs from layer to layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayerSpec {
    /// Tokens of a compressed row, where there are any.
    pub(super) ratio: Option<usize>,
    /// Experts are chosen by the token.
    pub(super) hashed: bool,
    /// Of the experts.
    pub(super) activation: Activation,
    /// Of the shared expert.
    pub(super) shared_activation: Activation,
}

impl LayerSpec {
    /// An indexer chooses among the compressed rows.
    pub(super) fn indexed(&self) -> bool {
        self.ratio == Some(INDEXED_RATIO)
    }

    /// The windows that a compressed row is made of.
    pub(super) fn series(&self) -> usize {
        if self.indexed() { 2 } else { 1 }
    }
}

impl Spec {
    /// Reads the metadata.
    ///
    /// # Errors
    /// Keys that are missing, of the wrong type or out of range.
    pub(super) fn read(keys: &Keys<'_>) -> Result<Self, ModelError> {
        let hidden = keys.count("embedding_length", MOST)?;
        let streams = keys.count("hyper_connection.count", HyperSpec::MOST_STREAMS as u32)?;
        let wide = keys.count_or("embedding_length_out", u32::MAX, streams * hidden)?;
        same(keys, "embedding_length_out", wide, streams * hidden)?;
        let heads = keys.count("attention.head_count", MOST)?;
        let kv_heads = keys.count_or("attention.head_count_kv", MOST, 1)?;
        same(keys, "attention.head_count_kv", kv_heads, 1)?;
        let head_dim = keys.count("attention.key_length", MOST)?;
        let value_dim = keys.count_or("attention.value_length", MOST, head_dim)?;
        same(keys, "attention.value_length", value_dim, head_dim)?;
        let groups = keys.count("attention.output_group_count", MOST)?;
        if !heads.is_multiple_of(groups) {
            let expected = format!("a divisor of {heads}, the number of heads");
            return Err(keys.refuse("attention.output_group_count", groups, expected));
        }
        let index = IndexDims {
            heads: keys.count("attention.indexer.head_count", MOST)?,
            width: keys.count("attention.indexer.key_length", MOST)?,
            top_k: keys.count("attention.indexer.top_k", MOST)?,
        };
        let eps = keys.positive("attention.layer_norm_rms_epsilon")?;
        let (count, prefix) = mtp::place(keys)?;
        let (layers, layer) = layers(keys, count, prefix.is_some())?;
        let experts = keys.count("expert_count", MOST)?;
        let expert_width = keys.count("expert_feed_forward_length", MOST)?;
        Ok(Self {
            context: keys.count("context_length", u32::MAX)? as u32,
            vocab: vocab(keys)?,
            hidden,
            hyper: HyperSpec {
                streams,
                iterations: keys.count("hyper_connection.sinkhorn_iterations", 1000)?,
                eps: keys.positive("hyper_connection.epsilon")?,
                norm_eps: eps,
            },
            heads,
            head_dim,
            q_rank: keys.count("attention.q_lora_rank", MOST)?,
            groups,
            group_rank: keys.count("attention.output_lora_rank", MOST)?,
            window: keys.count("attention.sliding_window", MOST)?,
            index,
            experts,
            chosen: keys.count("expert_used_count", experts as u32)?,
            expert_width,
            shared_width: expert_width * keys.count_or("expert_shared_count", 64, 1)?,
            route: route(keys)?,
            eps,
            ropes: ropes(keys, head_dim, index.width)?,
            block_tokens: block_tokens(keys, &layers)?,
            layers,
            mtp: prefix.map(|prefix| MtpSpec { prefix, layer }),
        })
    }

    /// The experts of a layer.
    pub(super) fn experts(&self, layer: &LayerSpec) -> ExpertsSpec {
        ExpertsSpec {
            experts: self.experts,
            chosen: self.chosen,
            activation: layer.activation,
        }
    }

    /// The rotations of a layer.
    pub(super) fn ropes(&self, layer: &LayerSpec) -> &Ropes {
        &self.ropes[usize::from(layer.ratio.is_some())]
    }
}

/// An error unless the value is the one that follows from other keys.
fn same(keys: &Keys<'_>, suffix: &str, found: usize, expected: usize) -> Result<(), ModelError> {
    if found == expected {
        return Ok(());
    }
    Err(keys.refuse(suffix, found, expected.to_string()))
}

/// ds4's files say it, llama.cpp's leave it to the embedding.
fn vocab(keys: &Keys<'_>) -> Result<usize, ModelError> {
    let rows = base::vocab(keys)?;
    same(
        keys,
        "vocab_size",
        keys.count_or("vocab_size", u32::MAX, rows)?,
        rows,
    )?;
    Ok(rows)
}

fn route(keys: &Keys<'_>) -> Result<RouteSpec, ModelError> {
    match keys.u32("expert_gating_func")? {
        None | Some(SQRT_SOFTPLUS) => {}
        Some(other) => {
            let expected = "4, the square root of softplus";
            return Err(keys.refuse("expert_gating_func", other, expected));
        }
    }
    let normalised = keys.metadata().bool(&keys.key("expert_weights_norm"))?;
    Ok(RouteSpec {
        normalised: normalised.unwrap_or(true),
        scale: keys.positive("expert_weights_scale")?,
    })
}

/// All rotations of a layer with a compressor have a base of their own and the file's YaRN, whose growth of the magnitude is left out.
fn ropes(keys: &Keys<'_>, head_dim: usize, index_width: usize) -> Result<[Ropes; 2], ModelError> {
    let least = head_dim.min(index_width) as u32;
    let rotary_dim = keys.count("rope.dimension_count", least)?;
    if !rotary_dim.is_multiple_of(2) {
        return Err(keys.refuse("rope.dimension_count", rotary_dim, "an even number"));
    }
    let table = |head_dim, base, scaling| {
        RopeTable::new(&RopeSpec {
            head_dim,
            rotary_dim,
            style: RopeStyle::Interleaved,
            base,
            scaling,
            factors: None,
        })
        .at_end()
    };
    let of = |base, scaling| Ropes {
        forward: table(head_dim, base, scaling),
        back: table(head_dim, base, scaling).inverse(),
        index: table(index_width, base, scaling),
    };
    let mut scaling = base::scaling(keys, true)?;
    if let RopeScaling::Yarn {
        factor,
        attention_factor,
        ..
    } = &mut scaling
    {
        *attention_factor = 1.0 / (1.0 + 0.1 * factor.ln());
    }
    let plain = base::rope_base(keys, "rope.freq_base", 10_000.0)?;
    keys.positive("attention.compress_rope_freq_base")?;
    let compressed = base::rope_base(keys, "attention.compress_rope_freq_base", 160_000.0)?;
    Ok([of(plain, RopeScaling::None), of(compressed, scaling)])
}

/// The layers of a model, and the one that a block behind them would be.
fn layers(
    keys: &Keys<'_>,
    count: usize,
    has_mtp: bool,
) -> Result<(Vec<LayerSpec>, LayerSpec), ModelError> {
    let mut ratios = keys.metadata().require_u32s(&keys.key(RATIOS))?;
    // The upstream list has one more, for the block that predicts one token further.
    if ratios.len() < count {
        let found = format!("an array of {}", ratios.len());
        return Err(keys.refuse(RATIOS, found, format!("one for each of the {count} layers")));
    }
    ratios.resize(count + 1, 0);
    if has_mtp && ratios[count] != 0 {
        return Err(keys.refuse(RATIOS, ratios[count], "0 for the block behind the layers"));
    }
    let hashed = keys.u32("hash_layer_count")?.unwrap_or(0) as usize;
    let limits = clamps(keys, "swiglu_clamp_exp", count, None)?;
    let shared_limits = clamps(keys, "swiglu_clamp_shexp", count, Some(&limits))?;
    let of = |i: usize| LayerSpec {
        ratio: (ratios[i] > 0 && i < count).then_some(ratios[i] as usize),
        hashed: i < hashed.min(count),
        activation: limits[i],
        shared_activation: shared_limits[i],
    };
    Ok(((0..count).map(of).collect(), of(count)))
}

/// The least number of tokens that makes whole blocks of any other model's and whole rows of every layer.
fn block_tokens(keys: &Keys<'_>, layers: &[LayerSpec]) -> Result<usize, ModelError> {
    let ratios = layers.iter().filter_map(|layer| layer.ratio);
    let mut tokens = BLOCK_TOKENS;
    for ratio in ratios {
        let common = (1..=ratio).map(|n| n * tokens);
        let whole = |n: &usize| n.is_multiple_of(ratio);
        let most = |n: &usize| *n <= MOST_BLOCK_TOKENS;
        let Some(next) = common.take_while(most).find(whole) else {
            let expected = format!(
                "numbers that have a common multiple with {BLOCK_TOKENS} of at most {MOST_BLOCK_TOKENS}"
            );
            return Err(keys.refuse(RATIOS, ratio, expected));
        };
        tokens = next;
    }
    Ok(tokens)
}

/// The activation of each layer from its limit, 0 being none, and of a block behind them: that of the last unless the list goes on.
/// One number stands for all.
fn clamps(
    keys: &Keys<'_>,
    suffix: &str,
    layers: usize,
    default: Option<&[Activation]>,
) -> Result<Vec<Activation>, ModelError> {
    let key = keys.key(suffix);
    let mut limits = match (keys.metadata().get(&key), default) {
        (None, Some(default)) => return Ok(default.to_vec()),
        (Some(Value::F32(_)), _) => vec![keys.metadata().require_f32(&key)?; layers],
        _ => keys.metadata().require_f32s(&key)?,
    };
    if limits.len() < layers {
        let found = format!("an array of {}", limits.len());
        let expected = format!("one for each of the {layers} layers");
        return Err(keys.refuse(suffix, found, expected));
    }
    limits.resize(layers + 1, limits[layers - 1]);
    let activation = |&limit: &f32| match limit {
        0.0 => Ok(Activation::Silu),
        _ if limit > 0.0 && limit.is_finite() => Ok(Activation::SiluBelow(limit)),
        _ => Err(keys.refuse(suffix, limit, "finite numbers of at least 0")),
    };
    limits.iter().map(activation).collect()
}
