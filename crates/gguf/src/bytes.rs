//! The bytes of a file, and parts of it that are kept.

use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use crate::mmap::Mapping;

/// The bytes of a file.
#[derive(Debug)]
pub(crate) enum Bytes {
    Mapped(Mapping),
    Owned(Vec<u8>),
}

impl Bytes {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::Mapped(Mapping::open(path)?))
    }

    pub(crate) fn get(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping.bytes(),
            Self::Owned(bytes) => bytes,
        }
    }

    /// Lets the system take back the memory of these bytes, if it can read them again.
    pub(crate) fn release(&self, range: Range<usize>) {
        if let Self::Mapped(mapping) = self {
            mapping.release(range);
        }
    }
}

/// A part of a file that stays readable when the file is dropped. The bytes of a mapped file are not copied.
#[derive(Debug, Clone)]
pub struct Kept {
    bytes: Arc<Bytes>,
    range: Range<usize>,
}

impl Kept {
    pub(crate) fn of(bytes: &Arc<Bytes>, range: Range<usize>) -> Self {
        let bytes = Arc::clone(bytes);
        Self { bytes, range }
    }

    pub(crate) fn copy(bytes: &[u8]) -> Self {
        let range = 0..bytes.len();
        let bytes = Arc::new(Bytes::Owned(bytes.to_vec()));
        Self { bytes, range }
    }
}

impl Deref for Kept {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes.get()[self.range.clone()]
    }
}
