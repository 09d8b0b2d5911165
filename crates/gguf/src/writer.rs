//! Builds GGUF files in memory.

use crate::part::ALIGNMENT_KEY;
use crate::split::{COUNT_KEY, NUMBER_KEY, TENSORS_KEY};
use crate::{Format, GgufHead, Metadata, Value, quant};

/// A GGUF file being built: metadata and tensors in the order given.
///
/// What the caller can get wrong is a bug and panics: a size that does not fit the shape, a name or
/// key used twice, a bad alignment.
#[derive(Debug, Clone)]
pub struct GgufWriter {
    version: u32,
    metadata: Metadata,
    tensors: Vec<Pending>,
}

#[derive(Debug, Clone)]
struct Pending {
    name: String,
    shape: Vec<u64>,
    format: Format,
    data: Vec<u8>,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl GgufWriter {
    /// An empty file of version 3.
    pub fn new() -> Self {
        Self {
            version: 3,
            metadata: Metadata::default(),
            tensors: Vec::new(),
        }
    }

    /// Sets the version, 2 or 3. The two differ in nothing else.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        assert!(matches!(version, 2 | 3), "version {version}");
        self.version = version;
        self
    }

    /// Sets `general.alignment`, a power of two.
    #[must_use]
    pub fn alignment(self, alignment: u32) -> Self {
        assert!(alignment.is_power_of_two(), "alignment {alignment}");
        self.metadata(ALIGNMENT_KEY, alignment)
    }

    /// Adds a metadata pair.
    #[must_use]
    pub fn metadata(mut self, key: &str, value: impl Into<Value>) -> Self {
        assert!(
            self.metadata.set(key, value.into()).is_none(),
            "metadata key {key:?} used twice"
        );
        self
    }

    /// Adds a tensor out of its blocks. `shape` is in ggml's order: columns first.
    #[must_use]
    pub fn tensor(
        mut self,
        name: &str,
        shape: &[u64],
        format: Format,
        data: impl Into<Vec<u8>>,
    ) -> Self {
        let data = data.into();
        let cols = shape.first().map_or(1, |&cols| cols as usize);
        let rows: u64 = shape.iter().skip(1).product();
        assert_eq!(
            data.len(),
            rows as usize * format.row_bytes(cols),
            "bytes of tensor {name:?} of shape {shape:?}"
        );
        assert!(
            self.tensors.iter().all(|tensor| tensor.name != name),
            "tensor name {name:?} used twice"
        );
        self.tensors.push(Pending {
            name: name.to_owned(),
            shape: shape.to_vec(),
            format,
            data,
        });
        self
    }

    /// Adds a tensor out of its elements, by the reference quantiser.
    #[must_use]
    pub fn tensor_f32(self, name: &str, shape: &[u64], format: Format, values: &[f32]) -> Self {
        let mut data = Vec::new();
        quant::quantize(format, values, &mut data);
        self.tensor(name, shape, format, data)
    }

    /// The file's bytes.
    pub fn finish(&self) -> Vec<u8> {
        write_file(self.version, &self.metadata, &self.tensors)
    }

    /// The bytes of `count` files that make up the model, to be named by [`crate::PartName`].
    pub fn finish_split(&self, count: u16) -> Vec<Vec<u8>> {
        assert!(count > 0, "no parts");
        let per_part = self.tensors.len().div_ceil(count.into()).max(1);
        let mut groups = self.tensors.chunks(per_part);
        (0..count)
            .map(|number| {
                let mut metadata = if number == 0 {
                    self.metadata.clone()
                } else {
                    Metadata::default()
                };
                metadata.set(NUMBER_KEY, number.into());
                metadata.set(COUNT_KEY, count.into());
                metadata.set(TENSORS_KEY, (self.tensors.len() as i32).into());
                write_file(self.version, &metadata, groups.next().unwrap_or_default())
            })
            .collect()
    }
}

fn write_file(version: u32, metadata: &Metadata, tensors: &[Pending]) -> Vec<u8> {
    let mut head = GgufHead::new(metadata.clone()).with_version(version);
    for tensor in tensors {
        head.tensor(&tensor.name, &tensor.shape, tensor.format);
    }
    let mut out = head.bytes();
    for tensor in tensors {
        out.extend(&tensor.data);
        out.resize(out.len() + head.padding(tensor.data.len()), 0);
    }
    out
}

#[cfg(test)]
mod tests;
