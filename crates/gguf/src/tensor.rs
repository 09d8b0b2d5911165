//! A tensor: its entry in the file's directory and its bytes.

use std::ops::Range;
use std::sync::Arc;

use crate::Format;
use crate::bytes::{Bytes, Kept};

/// A tensor of an open file. Entry and data are checked: `data` is exactly `rows ×
/// format.row_bytes(cols)` long.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    /// The name, unique in the model.
    pub name: &'a str,
    /// Sizes in ggml's order: `shape[0]` is contiguous (the columns). At most four, none 0; empty
    /// for a scalar.
    pub shape: &'a [u64],
    /// How the elements are stored.
    pub format: Format,
    /// The blocks, row after row. No alignment of the address is promised.
    pub data: &'a [u8],
    /// Where `data` lies, if in a file.
    part: Option<(&'a Arc<Bytes>, usize)>,
}

impl<'a> Tensor<'a> {
    /// A tensor that is in no file.
    pub fn new(name: &'a str, shape: &'a [u64], format: Format, data: &'a [u8]) -> Self {
        Self {
            name,
            shape,
            format,
            data,
            part: None,
        }
    }

    pub(crate) fn in_file(
        name: &'a str,
        shape: &'a [u64],
        format: Format,
        (bytes, range): (&'a Arc<Bytes>, Range<usize>),
    ) -> Self {
        Self {
            part: Some((bytes, range.start)),
            ..Self::new(name, shape, format, &bytes.get()[range])
        }
    }

    /// Says that these rows are not needed for now, so that a program which has copied them does not hold both. They can
    /// still be read, from the file again.
    ///
    /// # Panics
    /// When there are not that many rows.
    pub fn release(&self, rows: Range<usize>) {
        let row_bytes = self.format.row_bytes(self.cols());
        let (from, to) = (rows.start * row_bytes, rows.end * row_bytes);
        assert!(from <= to && to <= self.data.len(), "rows of the tensor");
        if let Some((bytes, start)) = self.part {
            bytes.release(start + from..start + to);
        }
    }

    /// The tensor's bytes, beyond the life of the file.
    pub fn keep(&self) -> Kept {
        match self.part {
            Some((bytes, start)) => Kept::of(bytes, start..start + self.data.len()),
            None => Kept::copy(self.data),
        }
    }

    /// Elements of a row: `shape[0]`.
    pub fn cols(&self) -> usize {
        // Not above the length of `data` in elements, so it fits.
        self.shape.first().map_or(1, |&cols| cols as usize)
    }

    /// Number of rows: the product of `shape[1..]`.
    pub fn rows(&self) -> usize {
        self.shape.iter().skip(1).product::<u64>() as usize
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.rows() * self.cols()
    }

    /// Never true of a tensor out of a file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The blocks of row `index`.
    ///
    /// # Panics
    /// When there are not that many rows.
    pub fn row(&self, index: usize) -> &'a [u8] {
        let row_bytes = self.format.row_bytes(self.cols());
        &self.data[index * row_bytes..][..row_bytes]
    }

    /// All elements, row after row, by the reference arithmetic.
    pub fn dequantize(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.len()];
        self.format.dequantize(self.data, &mut values);
        values
    }
}

impl std::fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} {:?} {} ({} bytes)",
            self.name,
            self.shape,
            self.format,
            self.data.len()
        )
    }
}
