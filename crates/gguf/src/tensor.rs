//! A tensor: its entry in the file's directory and its bytes.

use crate::Format;

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
}

impl<'a> Tensor<'a> {
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
