//! Constraints on answers: compiled on the caller's thread, followed beside the model.

mod guide;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use andante_text::{Constraint, ConstraintCompiler, Matcher, TextError, Tokenizer};

pub(crate) use guide::{Guide, Masks, failure};

/// Constraints that are kept compiled. Agents ask for the same few again and again.
const KEPT: usize = 32;

/// Stack for compiling: a grammar may hold a chain of some ten thousand rules, each a few frames deep. It is address space;
/// memory is used only as deep as the grammar goes.
const STACK_BYTES: usize = 256 << 20;

/// A compiled constraint.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    /// The beginning of an answer.
    pub(crate) start: Arc<Matcher>,
    /// Whether it is on all that the model says, reasoning and calls included, or on text for the user alone.
    pub(crate) whole: bool,
}

/// Compiles constraints for one model, and keeps the latest.
#[derive(Debug)]
pub(crate) struct Constraints {
    tokenizer: Arc<Tokenizer>,
    /// Made for the first constraint; `None` where the vocabulary is not fit for any.
    compiler: OnceLock<Option<ConstraintCompiler>>,
    /// One at a time, whoever asks: compiling must not take the model's processors.
    compiling: Mutex<()>,
    /// The latest last.
    recent: Mutex<VecDeque<(Constraint, Arc<Matcher>)>>,
}

impl Constraints {
    pub(crate) fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            tokenizer,
            compiler: OnceLock::new(),
            compiling: Mutex::new(()),
            recent: Mutex::default(),
        }
    }

    /// The beginning of answers under this constraint.
    ///
    /// # Errors
    /// What the compiler says, or that no constraint is possible with this model.
    pub(crate) fn compile(&self, constraint: &Constraint) -> Result<Arc<Matcher>, TextError> {
        if let Some(found) = self.recall(constraint) {
            return Ok(found);
        }
        let _turn = self
            .compiling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have compiled it meanwhile.
        if let Some(found) = self.recall(constraint) {
            return Ok(found);
        }
        let matcher = Arc::new(on_deep_stack(|| self.compile_new(constraint))?);
        let mut recent = self.recent();
        if recent.len() == KEPT {
            recent.pop_front();
        }
        recent.push_back((constraint.clone(), Arc::clone(&matcher)));
        Ok(matcher)
    }

    fn compile_new(&self, constraint: &Constraint) -> Result<Matcher, TextError> {
        let make = || match ConstraintCompiler::new(&self.tokenizer) {
            Ok(compiler) => Some(compiler),
            Err(error) => {
                tracing::warn!("{error}");
                None
            }
        };
        let compiler = self.compiler.get_or_init(make).as_ref();
        compiler
            .ok_or(TextError::Unconstrainable)?
            .compile(constraint)
    }

    fn recall(&self, constraint: &Constraint) -> Option<Arc<Matcher>> {
        let mut recent = self.recent();
        let index = recent.iter().position(|(kept, _)| kept == constraint)?;
        let entry = recent.remove(index).expect("it was just found");
        let matcher = Arc::clone(&entry.1);
        recent.push_back(entry);
        Some(matcher)
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<(Constraint, Arc<Matcher>)>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `work` with [`STACK_BYTES`] of stack, or with what this thread has where there is no other.
fn on_deep_stack<T: Send>(work: impl Fn() -> T + Sync) -> T {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("constraint".into());
        match builder.stack_size(STACK_BYTES).spawn_scoped(scope, &work) {
            Ok(thread) => match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            },
            Err(_) => work(),
        }
    })
}
