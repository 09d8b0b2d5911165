//! Memory that is asked for once, at load, and starts at a cache line.

use crate::ComputeError;
use std::ops::{Deref, DerefMut};

const LINE_BYTES: usize = 64;

/// Zeros, the first of them at the start of a cache line, so that vectors do not straddle two.
pub(crate) struct Aligned<T> {
    memory: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Copy + Default> Aligned<T> {
    /// `len` zeros for `what`.
    ///
    /// # Errors
    /// [`ComputeError::OutOfMemory`].
    pub(crate) fn new(len: usize, what: &'static str) -> Result<Self, ComputeError> {
        let too_large = || ComputeError::OutOfMemory {
            what,
            bytes: (len as u64).saturating_mul(size_of::<T>() as u64),
        };
        let padded = len
            .checked_add(LINE_BYTES / size_of::<T>())
            .ok_or_else(too_large)?;
        // Asking first turns a refusal into an error; asking again for zeros gets pages that take room only when used.
        let mut probe = Vec::<T>::new();
        probe.try_reserve_exact(padded).map_err(|_| too_large())?;
        drop(probe);
        let memory = vec![T::default(); padded];
        let start = memory.as_ptr().align_offset(LINE_BYTES);
        assert!(
            start + len <= memory.len(),
            "an aligned element is less than a line away"
        );
        Ok(Self { memory, start, len })
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Activations: `f32` `[max_rows, width]`.
pub struct CpuBuffer {
    data: Aligned<f32>,
    width: usize,
}

impl CpuBuffer {
    pub(super) fn new(max_rows: usize, width: usize) -> Result<Self, ComputeError> {
        let what = "an activation buffer";
        let len = max_rows
            .checked_mul(width)
            .ok_or(ComputeError::OutOfMemory {
                what,
                bytes: u64::MAX,
            })?;
        Ok(Self {
            data: Aligned::new(len, what)?,
            width,
        })
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn row(&self, index: usize) -> &[f32] {
        &self.data[index * self.width..][..self.width]
    }

    /// The first `n` rows.
    pub(super) fn rows(&self, n: usize) -> &[f32] {
        &self.data[..n * self.width]
    }

    /// The first `n` rows.
    pub(super) fn rows_mut(&mut self, n: usize) -> &mut [f32] {
        &mut self.data[..n * self.width]
    }
}
