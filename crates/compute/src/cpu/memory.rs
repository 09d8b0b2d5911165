//! Memory that is asked for once, at load.
#![expect(unsafe_code, reason = "one mapping shared out to matrices")]

use crate::ComputeError;
use memmap2::{Advice, MmapMut};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What the memory of a model's matrices is called in errors.
pub(crate) const WEIGHTS: &str = "the weights";

/// Bytes of a region that an [`Arena`] gives out. Only what is touched takes room.
const REGION_BYTES: usize = 64 << 20;

/// Where parts of a region begin: at a cache line, which is as much as a vector holds.
const ALIGN: usize = 64;

/// Zeros that take room only when they are touched, in large pages where the system has them: of a model's weights and of
/// its keys and values every page is visited at every step. Begins at a cache line, so that vectors do not straddle two.
pub(crate) struct Pages<T> {
    start: NonNull<T>,
    len: usize,
    /// Keeps the memory.
    _region: Arc<MmapMut>,
}

// SAFETY: it owns its elements as a `Vec` does: no other part of the region overlaps them, and nobody uses the region itself.
unsafe impl<T: Send> Send for Pages<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Pages<T> {}

impl<T: FromBytes + IntoBytes + Immutable> Pages<T> {
    /// `len` zeros for `what`, in a region of their own.
    ///
    /// # Errors
    /// [`ComputeError::OutOfMemory`].
    pub(crate) fn new(len: usize, what: &'static str) -> Result<Self, ComputeError> {
        let mut region = Region::new(bytes_of::<T>(len), what)?;
        Ok(region.part(len).expect("the region is for this part"))
    }
}

impl<T> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `Region::part` made them: so many elements, aligned, any bits of which are a `T`, for as long as the region.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else has this part.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Regions that many matrices share, one after the other. Alone, the matrices of a small model would lie in small pages: each
/// is smaller than a large one. A region goes with the last of its parts.
#[derive(Default)]
pub(crate) struct Arena {
    region: Option<Region>,
}

impl Arena {
    /// `len` zeros for the weights.
    ///
    /// # Errors
    /// [`ComputeError::OutOfMemory`].
    pub(crate) fn pages<T: FromBytes + IntoBytes + Immutable>(
        &mut self,
        len: usize,
    ) -> Result<Pages<T>, ComputeError> {
        let bytes = bytes_of::<T>(len);
        if bytes > REGION_BYTES / 4 {
            return Pages::new(len, WEIGHTS);
        }
        if let Some(part) = self.region.as_mut().and_then(|region| region.part(len)) {
            return Ok(part);
        }
        let region = self.region.insert(Region::new(REGION_BYTES, WEIGHTS)?);
        Ok(region.part(len).expect("a new region has room"))
    }
}

/// Memory from the system, of which the first `used` bytes have been given out.
struct Region {
    map: Arc<MmapMut>,
    used: usize,
}

impl Region {
    fn new(bytes: usize, what: &'static str) -> Result<Self, ComputeError> {
        let too_large = |_| ComputeError::OutOfMemory {
            what,
            bytes: bytes as u64,
        };
        let map = MmapMut::map_anon(bytes.max(1)).map_err(too_large)?;
        // Without them it is only slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(Advice::HugePage);
        let map = Arc::new(map);
        Ok(Self { map, used: 0 })
    }

    /// The next `len` elements, if there is room for them.
    fn part<T: FromBytes + IntoBytes + Immutable>(&mut self, len: usize) -> Option<Pages<T>> {
        const {
            assert!(
                align_of::<T>() <= ALIGN,
                "an element begins where its part does"
            );
        };
        let at = self.used.next_multiple_of(ALIGN);
        let end = at.checked_add(bytes_of::<T>(len))?;
        if end > self.map.len() {
            return None;
        }
        self.used = end;
        let start = self.map.as_ptr().cast_mut().wrapping_add(at);
        Some(Pages {
            start: NonNull::new(start.cast()).expect("memory is not at 0"),
            len,
            _region: Arc::clone(&self.map),
        })
    }
}

/// More than there is where they cannot be counted.
fn bytes_of<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>())
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

#[cfg(test)]
mod tests;
