//! One answer on its way through a constraint.

use std::sync::Arc;

use llguidance::toktrie::SimpleVob;

use super::complaint;
use crate::TextError;

/// A place in a constraint: which tokens may come next, and whether the answer may end here.
///
/// A clone is a fresh copy that shares nothing, so what one answer does never shows in another's.
pub struct Matcher {
    inner: llguidance::Matcher,
    /// One bit a token, the lowest bit of the first word is token 0.
    mask: SimpleVob,
    /// Tokens that are allowed wherever another one is.
    twins: Arc<[(u32, u32)]>,
}

impl Matcher {
    pub(super) fn new(inner: llguidance::Matcher, twins: Arc<[(u32, u32)]>) -> Self {
        Self {
            inner,
            mask: SimpleVob::default(),
            twins,
        }
    }

    /// Finds out which tokens may come next; tokens that end an answer are among them where the answer may end.
    ///
    /// # Errors
    /// [`TextError::DeadEnd`] where no token may, [`TextError::Constraint`] where finding out goes beyond the limits. The
    /// matcher cannot be used any more.
    pub fn compute_mask(&mut self) -> Result<(), TextError> {
        self.mask = self.inner.compute_mask_or_eos().map_err(|error| {
            let message = complaint(&error);
            // The word for "no token allowed" among the engine's reasons to stop.
            if message == "NoExtensionBias" {
                TextError::DeadEnd
            } else {
                TextError::constraint(message)
            }
        })?;
        for &(kept, other) in &*self.twins {
            if self.mask.is_allowed(kept) {
                self.mask.allow_token(other);
            }
        }
        Ok(())
    }

    /// What [`Self::compute_mask`] has found: one bit a token, the lowest bit of the first word is token 0. Tokens beyond
    /// its end are not allowed.
    #[must_use]
    pub fn mask(&self) -> &[u32] {
        self.mask.as_slice()
    }

    /// Goes on behind a token.
    ///
    /// # Errors
    /// [`TextError::Constraint`] for a token that was not allowed.
    pub fn accept(&mut self, token: u32) -> Result<(), TextError> {
        self.inner
            .consume_token(token)
            .map_err(|error| TextError::constraint(complaint(&error)))
    }

    /// Whether the answer may end here.
    #[cfg(test)]
    pub(crate) fn is_accepting(&mut self) -> bool {
        self.inner.is_accepting().unwrap_or(false)
    }

    /// Whether nothing but the end can come.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.inner.is_stopped()
    }
}

impl Clone for Matcher {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.deep_clone(),
            mask: self.mask.clone(),
            twins: Arc::clone(&self.twins),
        }
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher")
            .field("stop_reason", &self.inner.stop_reason())
            .finish_non_exhaustive()
    }
}
