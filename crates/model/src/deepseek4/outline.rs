//! What a DeepSeek V4 would be.

use andante_compute::{Kept, Row};

use super::layout::Layout;
use super::spec::{LayerSpec, Spec};
use crate::ModelError;
use crate::metadata::Keys;
use crate::outline::{Outline, counted, token_bytes};

/// See [`crate::outline()`].
pub(crate) fn outline(keys: &Keys<'_>) -> Result<Outline, ModelError> {
    let spec = Spec::read(keys)?;
    // Not read for a token: nothing decodes with it.
    let is_mtp = |name: &str| {
        let mtp = spec.mtp.as_ref();
        mtp.is_some_and(|mtp| name.starts_with(&mtp.prefix))
    };
    let tensors = keys.file.tensors().filter(|tensor| !is_mtp(tensor.name));
    let kv = |kept: &dyn Fn(Row, usize) -> Kept| Layout::new(&spec, kept).kv(&spec);
    Ok(Outline {
        context: spec.context,
        layers: counted(spec.layers.iter().map(|layer| kind(&spec, layer))),
        token_bytes: token_bytes(keys, tensors, (spec.chosen, spec.experts)),
        kv: vec![
            ("f16", kv(&|row, _| Kept::half(row))),
            ("q8_0", kv(&Kept::compact)),
        ],
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
