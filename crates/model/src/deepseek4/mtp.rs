//! The block that predicts one token further (multi-token prediction): a layer whose streams come from those that a token leaves
//! behind the last layer and from the next token's embedding. Files have it in one of two forms ([`place`]). It is loaded, so
//! that a file which has it is known to be whole, but nothing decodes with it yet.

use andante_compute::Deepseek4 as Ops;
use andante_gguf::Tensor;

use super::load::{Hyper, Layer, LayerLoader};
use super::spec::{LayerSpec, Spec};
use crate::ModelError;
use crate::loader::Loader;
use crate::metadata::Keys;

/// Where such a block is and what differs in it.
#[derive(Debug, Clone)]
pub(super) struct MtpSpec {
    /// Before its tensors' names.
    pub(super) prefix: String,
    pub(super) layer: LayerSpec,
}

/// The weights of such a block.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "loading is the check; nothing decodes with it")
)]
pub(super) struct Mtp<B: Ops> {
    /// Norm and matrix of the next token's embedding.
    pub(super) token_norm: B::Weight,
    pub(super) token: B::Weight,
    /// Norm and matrix of each stream, the matrix once for each.
    pub(super) stream_norm: B::Weight,
    pub(super) streams: B::Weight,
    pub(super) block: Layer<B>,
    /// The model's own where there is none.
    pub(super) head: Option<Hyper<B>>,
    /// The model's own where there is none.
    pub(super) norm: Option<B::Weight>,
}

/// Of how many layers a model is made, and before which names the block's tensors lie if there is one: llama.cpp counts it among the
/// layers, as their last, ds4 does not.
///
/// # Errors
/// More than one such block.
pub(super) fn place(keys: &Keys<'_>) -> Result<(usize, Option<String>), ModelError> {
    let count = keys.count("block_count", 4096)?;
    let blocks = keys.u32("nextn_predict_layers")?.unwrap_or(0) as usize;
    let has = |name: &str| keys.file.tensor(name).is_some();
    let layers = count.saturating_sub(blocks);
    // Files that were written without the block may have the key.
    if blocks > 0 && has(&format!("blk.{layers}.{TOGETHER}.weight")) {
        return match blocks {
            1 if layers > 0 => Ok((layers, Some(format!("blk.{layers}.")))),
            _ => Err(keys.refuse("nextn_predict_layers", blocks, "0 or 1")),
        };
    }
    Ok((
        count,
        has("mtp.0.e_proj.weight").then(|| "mtp.0.".to_owned()),
    ))
}

/// llama.cpp's name of both matrices in one, side by side: the token's, then that of streams.
const TOGETHER: &str = "nextn.eh_proj";

/// Loads the block if there is one.
///
/// # Errors
/// Tensors that are missing or of another shape; a weight that the backend refuses.
pub(super) fn load<B: Ops>(
    loader: &mut Loader<'_, B>,
    spec: &Spec,
) -> Result<Option<Mtp<B>>, ModelError> {
    let Some(MtpSpec { prefix, layer }) = &spec.mtp else {
        return Ok(None);
    };
    let prefix = prefix.clone();
    let mut loader = LayerLoader {
        loader,
        spec,
        prefix,
    };
    let hidden = spec.hidden;
    let [token, streams] = projections(&mut loader)?;
    Ok(Some(Mtp {
        token_norm: loader.weight("enorm", &[hidden])?,
        token,
        stream_norm: loader.weight("hnorm", &[hidden])?,
        streams,
        block: loader.layer(layer)?,
        head: match loader.has("hc_head_fn") {
            true => Some(loader.hyper("hc_head", spec.hyper.streams, 1)?),
            false => None,
        },
        norm: match loader.has("norm") {
            true => Some(loader.weight("norm", &[hidden])?),
            false => None,
        },
    }))
}

/// The matrices of the token and of all streams.
fn projections<B: Ops>(loader: &mut LayerLoader<'_, '_, B>) -> Result<[B::Weight; 2], ModelError> {
    let (hidden, streams) = (loader.spec.hidden, loader.spec.hyper.streams);
    if loader.has(TOGETHER) {
        let name = loader.name(TOGETHER);
        let tensor = loader.loader.checked(&name, &[2 * hidden, hidden])?;
        let [token, stream] = halves(&tensor)?;
        let weights = [
            matrix(loader, (&tensor, &token), 1)?,
            matrix(loader, (&tensor, &stream), streams)?,
        ];
        loader.loader.taken(&tensor);
        return Ok(weights);
    }
    let mut one = |name: &str, copies: usize| -> Result<B::Weight, ModelError> {
        let name = loader.name(name);
        let tensor = loader.loader.checked(&name, &[hidden, hidden])?;
        let weight = matrix(loader, (&tensor, tensor.data), copies)?;
        loader.loader.taken(&tensor);
        Ok(weight)
    };
    Ok([one("e_proj", 1)?, one("h_proj", streams)?])
}

/// A square matrix of a tensor's format, several times one below the other.
fn matrix<B: Ops>(
    loader: &mut LayerLoader<'_, '_, B>,
    (tensor, data): (&Tensor<'_>, &[u8]),
    copies: usize,
) -> Result<B::Weight, ModelError> {
    let hidden = loader.spec.hidden as u64;
    let shape = [hidden, hidden, copies as u64];
    let dims = if copies > 1 { 3 } else { 2 };
    let data = data.repeat(copies);
    let tensor = Tensor::new(tensor.name, &shape[..dims], tensor.format, &data);
    Ok(loader.loader.backend.weight(&tensor)?)
}

/// The left and the right half of a matrix.
fn halves(tensor: &Tensor<'_>) -> Result<[Vec<u8>; 2], ModelError> {
    let width = tensor.cols() / 2;
    if !width.is_multiple_of(tensor.format.block_len()) {
        return Err(ModelError::TensorValue {
            name: tensor.name.to_owned(),
            found: tensor.format.to_string(),
            expected: format!("a format whose blocks divide {width}"),
        });
    }
    let half = tensor.format.row_bytes(width);
    let part = |at: usize| {
        let rows = tensor.data.chunks_exact(2 * half);
        rows.flat_map(|row| &row[at * half..][..half])
            .copied()
            .collect()
    };
    Ok([part(0), part(1)])
}
