//! From the scheduler's step to the model's batch.

use andante_model::{Batch, RowLogits};
use andante_sched::{Scheduler, SeqId, Step};

/// Writes the rows of `step` into `batch`, decode rows first, and into `sampled` whose logits come back, in order.
pub(crate) fn flatten(
    step: &Step,
    scheduler: &Scheduler,
    batch: &mut Batch,
    sampled: &mut Vec<SeqId>,
) {
    batch.clear();
    sampled.clear();
    let block_tokens = scheduler.config().block_tokens;
    for &id in &step.decode {
        let tokens = scheduler.tokens(id).expect("a planned sequence lives");
        let table = scheduler
            .block_table(id)
            .expect("a planned sequence has blocks");
        let newest = tokens.len() - 1;
        let position = u32::try_from(newest).expect("a sequence fits the context");
        batch.push_sequence(
            &tokens[newest..],
            position,
            table,
            block_tokens,
            RowLogits::Last,
        );
        sampled.push(id);
    }
    for part in &step.prefill {
        let tokens = scheduler.tokens(part.id).expect("a planned sequence lives");
        let table = scheduler
            .block_table(part.id)
            .expect("a planned sequence has blocks");
        let range = part.start as usize..(part.start + part.tokens) as usize;
        let logits = if part.last {
            RowLogits::Last
        } else {
            RowLogits::None
        };
        batch.push_sequence(&tokens[range], part.start, table, block_tokens, logits);
        if part.last {
            sampled.push(part.id);
        }
    }
}
