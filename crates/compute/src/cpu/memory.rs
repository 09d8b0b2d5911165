//! Memory that is asked for once, at load.

use crate::ComputeError;
use memmap2::{Advice, MmapMut};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What the memory of a model's matrices is called in errors.
pub(crate) const WEIGHTS: &str = "the weights";

/// Zeros that take room only when they are touched, in large pages where the system has them: of a model's weights and of
/// its keys and values every page is visited at every step. Begins at a page, so that vectors do not straddle cache lines.
pub(crate) struct Pages<T> {
    map: MmapMut,
    len: usize,
    element: PhantomData<T>,
}

impl<T: FromBytes + IntoBytes + Immutable> Pages<T> {
    /// `len` zeros for `what`.
    ///
    /// # Errors
    /// [`ComputeError::OutOfMemory`].
    pub(crate) fn new(len: usize, what: &'static str) -> Result<Self, ComputeError> {
        let bytes = len.saturating_mul(size_of::<T>());
        let too_large = |_| ComputeError::OutOfMemory {
            what,
            bytes: bytes as u64,
        };
        let map = MmapMut::map_anon(bytes.max(1)).map_err(too_large)?;
        // Without them it is only slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(Advice::HugePage);
        Ok(Self {
            map,
            len,
            element: PhantomData,
        })
    }
}

impl<T: FromBytes + IntoBytes + Immutable> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        <[T]>::ref_from_bytes(&self.map[..self.len * size_of::<T>()])
            .expect("a page is aligned for anything")
    }
}

impl<T: FromBytes + IntoBytes + Immutable> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        <[T]>::mut_from_bytes(&mut self.map[..self.len * size_of::<T>()])
            .expect("a page is aligned for anything")
    }
}

/// The first `len` elements of memory that is kept from call to call; what is in them is for the caller to overwrite.
pub(crate) fn sized<T: Clone + Default>(values: &mut Vec<T>, len: usize) -> &mut [T] {
    if values.len() < len {
        values.resize(len, T::default());
    }
    &mut values[..len]
}

/// Activations: `f32` `[max_rows, width]`.
pub struct CpuBuffer {
    data: Pages<f32>,
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
            data: Pages::new(len, what)?,
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
