//! An open model: one file, or all files of a split one.

use std::collections::HashMap;
use std::path::Path;

use crate::part::Part;
use crate::reader::Damage;
use crate::{Error, Fault, Metadata, Place, Tensor, split};

/// An open model, memory-mapped. Opening reads the metadata and the tensor directory only and
/// checks all of it: whatever the accessors return is consistent.
///
/// The files must not be rewritten in place while open.
#[derive(Debug)]
pub struct GgufFile {
    /// At least one; the first has the model's metadata.
    parts: Vec<Part>,
    /// Name to part and index in that part.
    index: HashMap<String, (usize, usize)>,
}

impl GgufFile {
    /// Opens a model. The path of any part of a split model opens all of it.
    ///
    /// # Errors
    /// When a file cannot be opened, a part is missing, or a file is damaged or not supported.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::join(split::gather(Part::open(path)?)?)
    }

    /// A model from memory: all of it, not a part of a split one.
    ///
    /// # Errors
    /// When the bytes are not a model, damaged or not supported.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        Self::join(split::gather(Part::from_bytes(bytes)?)?)
    }

    /// The model's metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.parts[0].metadata
    }

    /// The version of the GGUF format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.parts[0].version
    }

    /// The bytes of everything before the tensors' data, metadata and tensor directory, of each part of the model.
    pub fn heads(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(Part::head)
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.parts
            .iter()
            .flat_map(|part| (0..part.tensors.len()).map(|index| part.tensor(index)))
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.index
            .get(name)
            .map(|&(part, index)| self.parts[part].tensor(index))
    }

    fn join(parts: Vec<Part>) -> Result<Self, Error> {
        let mut index = HashMap::new();
        for (number, part) in parts.iter().enumerate() {
            for (entry_index, entry) in part.tensors.iter().enumerate() {
                if index
                    .insert(entry.name.clone(), (number, entry_index))
                    .is_some()
                {
                    let damage = Damage {
                        field: "name",
                        offset: entry.offset,
                        fault: Fault::Duplicate,
                    };
                    return Err(part.error(damage.at(Place::Tensor(entry.name.clone()))));
                }
            }
        }
        Ok(Self { parts, index })
    }
}

#[cfg(test)]
mod tests;
