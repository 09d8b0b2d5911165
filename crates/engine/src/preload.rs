//! After a start: what was said last is brought into memory before anybody asks, since whoever talked then probably goes on,
//! and shall not notice that there was a restart.

use std::collections::VecDeque;

use andante_sched::{Admission, Scheduler, SeqId};

use crate::spellings::Spellings;
use crate::store::Stores;

/// Sequences that are tried, at most.
const MOST: usize = 64;

/// Sequences to load, the latest first.
#[derive(Debug, Default)]
pub(crate) struct Preload {
    waiting: VecDeque<(u64, Vec<u32>)>,
    loading: Option<SeqId>,
}

impl Preload {
    /// What was said last, and to whom it is of use.
    pub(crate) fn new(spellings: &Spellings) -> Self {
        Self {
            waiting: spellings.last_said(MOST).into(),
            loading: None,
        }
    }

    /// Begins with the next one when the last is there, if it fits the memory that nobody has used yet. `next_id` is a name
    /// for it.
    pub(crate) fn go_on(
        &mut self,
        scheduler: &mut Scheduler,
        store: &mut Stores,
        mut next_id: impl FnMut() -> SeqId,
    ) {
        if self.is_loading(scheduler) {
            return;
        }
        self.loading = None;
        let block_tokens = scheduler.config().block_tokens;
        while let Some((salt, tokens)) = self.waiting.pop_front() {
            let stored = store.resumable(salt, &tokens);
            let free = scheduler.stats().blocks.free;
            if stored == 0 || stored / block_tokens >= free {
                continue;
            }
            // What is behind the last whole block too, if nothing is missing before it and others can go on from there. One token more, as of a prompt whose last
            // token is always computed; here it never is.
            let mut prompt = tokens;
            let stateful = scheduler.config().checkpoints > 0;
            if stateful || prompt.len() >= (stored + block_tokens) as usize {
                prompt.truncate(stored as usize);
            }
            prompt.push(0);
            let id = next_id();
            let admission = Admission {
                stored,
                salt,
                warm: true,
                ..Admission::new(id, &prompt, 1)
            };
            if scheduler.add(admission).is_ok() {
                self.loading = Some(id);
                return;
            }
        }
    }

    /// Whether [`go_on`](Self::go_on) has something to begin with now.
    pub(crate) fn is_due(&self, scheduler: &Scheduler) -> bool {
        !self.waiting.is_empty() && !self.is_loading(scheduler)
    }

    fn is_loading(&self, scheduler: &Scheduler) -> bool {
        self.loading
            .is_some_and(|id| scheduler.tokens(id).is_some())
    }

    /// Ends it: somebody has asked for something.
    pub(crate) fn stop(&mut self, scheduler: &mut Scheduler) {
        self.waiting.clear();
        if let Some(id) = self.loading.take() {
            scheduler.cancel(id);
        }
    }
}
