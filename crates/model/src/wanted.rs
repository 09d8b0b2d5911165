//! The rows of a step that somebody reads: logits first, then hidden states.

use andante_compute::{Backend, Batch};

use crate::{Logits, ModelError, States};

/// Those of the last forward pass.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// The rows that need logits, then those whose states are wanted.
    pub(crate) rows: Vec<u32>,
    logits: usize,
}

impl Wanted {
    pub(crate) fn set(&mut self, batch: &Batch) {
        self.logits = batch.logit_rows.len();
        self.rows.clear();
        self.rows.extend(&batch.logit_rows);
        self.rows.extend(&batch.state_rows);
    }

    /// What is in `logits`, `[logit_rows, vocab]`.
    pub(crate) fn logits<'a, B: Backend>(
        &self,
        backend: &'a mut B,
        logits: &'a B::Buffer,
        vocab: usize,
    ) -> Result<Logits<'a>, ModelError> {
        Ok(Logits::new(backend.read(logits, self.logits)?, vocab))
    }

    /// What is in `normed`, `[rows, hidden]`, behind the rows of the logits.
    pub(crate) fn states<'a, B: Backend>(
        &self,
        backend: &'a mut B,
        normed: &'a B::Buffer,
        hidden: usize,
    ) -> Result<States<'a>, ModelError> {
        let values = backend.read(normed, self.rows.len())?;
        Ok(States::new(&values[self.logits * hidden..], hidden))
    }
}
