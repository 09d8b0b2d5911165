//! From the scheduler's step to the model's batch.

use andante_model::{Batch, Pooling, RowLogits};
use andante_sched::{Scheduler, SeqId, Step};

/// Writes the rows of `step` into `batch`, decode rows first, and into `sampled` who gets a result, in order. `pooling`
/// says whose result is an embedding.
pub(crate) fn flatten(
    step: &Step,
    (scheduler, pooling): (&Scheduler, &dyn Fn(SeqId) -> Option<Pooling>),
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
        batch.states.extend(scheduler.running_state(id));
        sampled.push(id);
    }
    for part in &step.prefill {
        let tokens = scheduler.tokens(part.id).expect("a planned sequence lives");
        let table = scheduler
            .block_table(part.id)
            .expect("a planned sequence has blocks");
        let range = part.start as usize..(part.start + part.tokens) as usize;
        let logits = match (pooling(part.id), part.last) {
            (Some(Pooling::Mean), _) => RowLogits::AllStates,
            (Some(Pooling::Last), true) => RowLogits::LastState,
            (None, true) => RowLogits::Last,
            (_, false) => RowLogits::None,
        };
        batch.push_sequence(&tokens[range], part.start, table, block_tokens, logits);
        batch.states.extend(scheduler.running_state(part.id));
        if part.last {
            sampled.push(part.id);
        }
    }
}
