//! Everything of a GGUF file that comes before the tensors' data.

use crate::part::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};
use crate::value::write_string;
use crate::{Format, Metadata, Value};

/// Metadata and tensor directory of a file whose data is written afterwards, tensor by tensor in the
/// order given here, each followed by [`GgufHead::padding`] zeros. So a file of any size can be
/// written with little memory.
#[derive(Debug, Clone)]
pub struct GgufHead {
    version: u32,
    metadata: Metadata,
    tensors: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    name: String,
    shape: Vec<u64>,
    format: Format,
}

impl GgufHead {
    /// The head of a file of version 3 without tensors.
    pub fn new(metadata: Metadata) -> Self {
        Self {
            version: 3,
            metadata,
            tensors: Vec::new(),
        }
    }

    pub(crate) fn with_version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Adds a tensor. `shape` is in ggml's order: columns first.
    pub fn tensor(&mut self, name: &str, shape: &[u64], format: Format) {
        self.tensors.push(Entry {
            name: name.to_owned(),
            shape: shape.to_vec(),
            format,
        });
    }

    /// The head, padded up to where the first tensor's data begins.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in self.metadata.iter() {
            write_string(key.as_bytes(), &mut out);
            value.write(&mut out);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            write_string(tensor.name.as_bytes(), &mut out);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor
                .shape
                .iter()
                .for_each(|size| out.extend(size.to_le_bytes()));
            out.extend(tensor.format.id().to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            let cols = tensor.shape.first().map_or(1, |&cols| cols as usize);
            let rows = tensor.shape.iter().skip(1).product::<u64>() as usize;
            let len = rows * tensor.format.row_bytes(cols);
            offset += len + self.padding(len);
        }
        out.resize(out.len() + self.padding(out.len()), 0);
        out
    }

    /// Zeros that follow `len` bytes of data. Some readers expect them after the last tensor too.
    pub fn padding(&self, len: usize) -> usize {
        let alignment = match self.metadata.get(ALIGNMENT_KEY) {
            Some(Value::U32(alignment)) => *alignment as usize,
            _ => DEFAULT_ALIGNMENT as usize,
        };
        len.next_multiple_of(alignment) - len
    }
}
