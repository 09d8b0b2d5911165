//! Metadata under an architecture's prefix, with errors that name the key.

use std::fmt::Display;

use andante_gguf::{GgufFile, Metadata};

use crate::ModelError;

/// A file's metadata under `<architecture>.`.
pub(crate) struct Keys<'a> {
    pub(crate) file: &'a GgufFile,
    pub(crate) architecture: &'a str,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(file: &'a GgufFile) -> Result<Self, ModelError> {
        let architecture = file.metadata().require_str("general.architecture")?;
        Ok(Self { file, architecture })
    }

    pub(crate) fn metadata(&self) -> &'a Metadata {
        self.file.metadata()
    }

    /// The whole key of `suffix`.
    pub(crate) fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.architecture)
    }

    pub(crate) fn u32(&self, suffix: &str) -> Result<Option<u32>, ModelError> {
        Ok(self.metadata().u32(&self.key(suffix))?)
    }

    /// A finite number.
    pub(crate) fn f32(&self, suffix: &str) -> Result<Option<f32>, ModelError> {
        match self.metadata().f32(&self.key(suffix))? {
            Some(value) if !value.is_finite() => Err(self.refuse(suffix, value, "a finite number")),
            value => Ok(value),
        }
    }

    /// A count that must be there and lie in `1..=most`.
    pub(crate) fn count(&self, suffix: &str, most: u32) -> Result<usize, ModelError> {
        let value = self.metadata().require_u32(&self.key(suffix))?;
        self.check_count(suffix, value, most)
    }

    /// A count that may be absent.
    pub(crate) fn count_or(
        &self,
        suffix: &str,
        most: u32,
        default: usize,
    ) -> Result<usize, ModelError> {
        match self.u32(suffix)? {
            None => Ok(default),
            Some(value) => self.check_count(suffix, value, most),
        }
    }

    fn check_count(&self, suffix: &str, value: u32, most: u32) -> Result<usize, ModelError> {
        if value == 0 || value > most {
            return Err(self.refuse(suffix, value, format!("1 to {most}")));
        }
        Ok(value as usize)
    }

    /// A number above 0 that must be there.
    pub(crate) fn positive(&self, suffix: &str) -> Result<f32, ModelError> {
        self.metadata().require_f32(&self.key(suffix))?;
        self.positive_or(suffix, 1.0)
    }

    /// A number above 0, or `default` when absent.
    pub(crate) fn positive_or(&self, suffix: &str, default: f32) -> Result<f32, ModelError> {
        match self.f32(suffix)? {
            None => Ok(default),
            Some(value) if value > 0.0 => Ok(value),
            Some(value) => Err(self.refuse(suffix, value, "a number above 0")),
        }
    }

    /// An error unless the key is absent or 0: the feature behind it is not part of this graph.
    pub(crate) fn refuse_nonzero(&self, suffix: &str) -> Result<(), ModelError> {
        match self.f32(suffix) {
            Ok(Some(value)) if value != 0.0 => Err(self.refuse(suffix, value, "0 (not supported)")),
            Ok(_) => Ok(()),
            // An integer key answers `f32` with a type error.
            Err(_) => match self.u32(suffix)? {
                Some(value) if value != 0 => Err(self.refuse(suffix, value, "0 (not supported)")),
                _ => Ok(()),
            },
        }
    }

    pub(crate) fn refuse(
        &self,
        suffix: &str,
        found: impl Display,
        expected: impl Into<String>,
    ) -> ModelError {
        ModelError::Metadata {
            key: self.key(suffix),
            found: found.to_string(),
            expected: expected.into(),
        }
    }
}
