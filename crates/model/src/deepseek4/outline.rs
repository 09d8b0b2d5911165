//! What a DeepSeek V4 would be.

use andante_compute::BLOCK_TOKENS;

use super::layout::Layout;
use super::spec::{LayerSpec, Spec};
use crate::ModelError;
use crate::metadata::Keys;
use crate::outline::{Outline, counted, token_bytes};

/// See [`crate::outline()`].
pub(crate) fn outline(keys: &Keys<'_>) -> Result<Outline, ModelError> {
    let spec = Spec::read(keys)?;
    let layout = Layout::new(&spec);
    Ok(Outline {
        context: spec.context,
        layers: counted(spec.layers.iter().map(|layer| kind(&spec, layer))),
        token_bytes: token_bytes(keys.file, (spec.chosen, spec.experts)),
        block_tokens: BLOCK_TOKENS as u32,
        block_values: layout.block_len as u64,
        state_bytes: (layout.state_len * size_of::<f32>()) as u64,
    })
}

fn kind(spec: &Spec, layer: &LayerSpec) -> String {
    let window = format!("attention to a window of {}", spec.window);
    let Some(ratio) = layer.ratio else {
        return window;
    };
    let rows = match layer.indexed() {
        true => format!("the best {} of the rows", spec.index.top_k),
        false => "all rows".to_owned(),
    };
    format!("{window} and to {rows} of {ratio} tokens each")
}
