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
    recent: Mutex<VecDeque<Kept>>,
}

/// What became of a constraint.
#[derive(Debug)]
struct Kept {
    salt: u64,
    constraint: Constraint,
    compiled: Result<Arc<Matcher>, Refusal>,
}

/// What [`TextError::Constraint`] says.
#[derive(Debug, Clone)]
struct Refusal {
    message: String,
    path: Option<String>,
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

    /// The beginning of answers under this constraint. What others of another salt have asked does not show in the time it takes.
    ///
    /// # Errors
    /// What the compiler says, or that no constraint is possible with this model.
    pub(crate) fn compile(
        &self,
        salt: u64,
        constraint: &Constraint,
    ) -> Result<Arc<Matcher>, TextError> {
        if let Some(known) = self.recall(salt, constraint) {
            return known;
        }
        let _turn = self
            .compiling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have compiled it meanwhile.
        if let Some(known) = self.recall(salt, constraint) {
            return known;
        }
        let compiled = match on_deep_stack(|| self.compile_new(constraint)) {
            Ok(matcher) => Ok(Arc::new(matcher)),
            Err(TextError::Constraint { message, path }) => Err(Refusal { message, path }),
            Err(error) => return Err(error),
        };
        let mut recent = self.recent();
        if recent.len() == KEPT {
            recent.pop_front();
        }
        recent.push_back(Kept {
            salt,
            constraint: constraint.clone(),
            compiled: compiled.clone(),
        });
        compiled.map_err(TextError::from)
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

    fn recall(
        &self,
        salt: u64,
        constraint: &Constraint,
    ) -> Option<Result<Arc<Matcher>, TextError>> {
        let mut recent = self.recent();
        let same = |kept: &Kept| kept.salt == salt && kept.constraint == *constraint;
        let index = recent.iter().position(same)?;
        let kept = recent.remove(index).expect("it was just found");
        let compiled = kept.compiled.clone();
        recent.push_back(kept);
        Some(compiled.map_err(TextError::from))
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Refusal> for TextError {
    fn from(Refusal { message, path }: Refusal) -> Self {
        Self::Constraint { message, path }
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
