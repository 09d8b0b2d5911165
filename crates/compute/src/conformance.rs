//! The checks that every backend passes: each op against plain double-precision code, and "rows are independent".
//!
//! A backend's own tests call [`run`]. Results may differ from the reference by rounding, also by that of half-precision
//! keys and values and of activations quantised for products; between two ways to batch the same rows they may not
//! differ at all.

mod blocks;
mod deepseek4;
mod independence;
mod ops;
mod reference;
mod rig;

use crate::{Backend, Deepseek4};
#[cfg(test)]
pub(crate) use blocks::set_scales;
use rig::Rig;

/// Runs all checks on backends from `make`, each check on a fresh one.
///
/// `stored` makes of a head's row of keys or values what the cache holds of it. Half precision holds all that the suite
/// uses, and leaves them as they are.
///
/// # Panics
/// When a check fails.
pub fn run<B: Backend>(mut make: impl FnMut() -> B, stored: Stored) {
    let checks: [Check<B>; 10] = [
        ops::embed,
        ops::norms,
        ops::products,
        ops::sums,
        ops::activations,
        ops::experts,
        ops::rope,
        independence::each_op_row_by_row,
        independence::products_row_by_row,
        independence::experts_row_by_row,
    ];
    for check in checks {
        check(&mut Rig::new(make(), stored));
    }
    run_attention(make, stored);
}

/// The part of [`run`] that keys and values take part in, for further number formats of theirs.
///
/// # Panics
/// When a check fails.
pub fn run_attention<B: Backend>(mut make: impl FnMut() -> B, stored: Stored) {
    let checks: [Check<B>; 7] = [
        ops::attention_of_one_sequence,
        ops::attention_of_many_sequences,
        ops::attention_with_sinks,
        ops::masked_slots_are_never_read,
        ops::blocks_can_be_moved,
        independence::attention_in_any_chunks_and_blocks,
        independence::layers_in_any_batch,
    ];
    for check in checks {
        check(&mut Rig::new(make(), stored));
    }
}

/// The checks of the ops that DeepSeek V4 asks for.
///
/// # Panics
/// When a check fails.
pub fn run_deepseek4<B: Deepseek4>(mut make: impl FnMut() -> B) {
    let checks: [Check<B>; 8] = [
        ops::activations,
        deepseek4::records,
        deepseek4::copies,
        deepseek4::hyper_connections,
        deepseek4::grouped_products,
        deepseek4::routes,
        deepseek4::chosen_experts,
        deepseek4::compressed_attention,
    ];
    for check in checks {
        check(&mut Rig::new(make(), |_| {}));
    }
}

/// What becomes of a head's row of keys or values that is stored and read again.
pub type Stored = fn(&mut [f32]);

type Check<B> = fn(&mut Rig<B>);
