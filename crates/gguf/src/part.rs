//! One GGUF file: a whole model or a part of a split one.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | magic `GGUF` |
//! | 4 | version, 2 or 3 |
//! | 8 | number of tensors |
//! | 8 | number of metadata pairs |
//! | … | metadata pairs: key (string), value type (u32), value |
//! | … | tensor entries: name (string), number of dimensions (u32), dimensions (u64 each), format (u32), data offset (u64) |
//! | … | zeros up to a multiple of `general.alignment`, 32 unless given |
//! | … | tensor data; a tensor's offset counts from here and is a multiple of the alignment |
//!
//! All integers are little-endian; a string is its length (u64) and its bytes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::metadata::describe;
use crate::reader::{Damage, Reader};
use crate::{Error, Fault, Format, Malformed, Metadata, Place, Tensor, Value};

pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
pub(crate) const DEFAULT_ALIGNMENT: u32 = 32;

/// Where the header says how many metadata pairs there are.
const PAIRS_OFFSET: u64 = 16;
/// ggml's limit.
const MAX_DIMENSIONS: usize = 4;
/// The smallest metadata pair: an empty key, a type and one byte.
const MIN_PAIR_BYTES: u64 = 8 + 4 + 1;
/// The smallest tensor entry: an empty name, no dimensions, format and offset.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 4 + 8;

/// A file whose structure is checked.
#[derive(Debug)]
pub(crate) struct Part {
    bytes: Arc<Bytes>,
    pub(crate) path: Option<PathBuf>,
    pub(crate) version: u32,
    pub(crate) metadata: Metadata,
    /// Where the value of each metadata key begins, in file order: for errors found later.
    value_offsets: Vec<u64>,
    pub(crate) tensors: Vec<Entry>,
    /// Bytes of everything before the tensors' data.
    head_len: usize,
}

/// An entry of the tensor directory.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Where the entry begins in the file.
    pub(crate) offset: u64,
    shape: Vec<u64>,
    format: Format,
    /// Into the file's bytes.
    data: Range<usize>,
}

/// What parsing yields besides the bytes it read.
struct Contents {
    version: u32,
    metadata: Metadata,
    value_offsets: Vec<u64>,
    tensors: Vec<Entry>,
    head_len: usize,
}

impl Part {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let bytes = Bytes::open(path).map_err(|source| Error::Io {
            path: path.to_owned(),
            source,
        })?;
        Self::new(bytes, Some(path.to_owned()))
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        Self::new(Bytes::Owned(bytes), None)
    }

    pub(crate) fn tensor(&self, index: usize) -> Tensor<'_> {
        let entry = &self.tensors[index];
        let part = (&self.bytes, entry.data.clone());
        Tensor::in_file(&entry.name, &entry.shape, entry.format, part)
    }

    /// See [`crate::GgufFile::heads`].
    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes.get()[..self.head_len]
    }

    /// An error about the value of metadata `key`.
    pub(crate) fn value_error(&self, key: &str, fault: Fault) -> Error {
        let mut keys = self.metadata.iter().map(|(name, _)| name);
        let index = keys
            .position(|name| name == key)
            .expect("a key with a value");
        let (field, offset) = ("value", self.value_offsets[index]);
        let damage = Damage {
            field,
            offset,
            fault,
        };
        self.error(damage.at(Place::Metadata(key.to_owned())))
    }

    /// An error about the absence of a key that every part of a split model has.
    pub(crate) fn missing_key(&self, key: &'static str) -> Error {
        let fault = Fault::MissingPartKey { key };
        self.error(
            Damage {
                field: "metadata count",
                offset: PAIRS_OFFSET,
                fault,
            }
            .at(Place::Header),
        )
    }

    pub(crate) fn error(&self, malformed: Malformed) -> Error {
        Error::Malformed(Box::new(Malformed {
            file: self.path.clone(),
            ..malformed
        }))
    }

    fn new(bytes: Bytes, path: Option<PathBuf>) -> Result<Self, Error> {
        match Contents::read(bytes.get()) {
            Ok(Contents {
                version,
                metadata,
                value_offsets,
                tensors,
                head_len,
            }) => Ok(Self {
                bytes: Arc::new(bytes),
                path,
                version,
                metadata,
                value_offsets,
                tensors,
                head_len,
            }),
            Err(malformed) => Err(Error::Malformed(Box::new(Malformed {
                file: path,
                ..malformed
            }))),
        }
    }
}

impl Contents {
    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let header = Header::read(&mut reader).map_err(|damage| damage.at(Place::Header))?;

        let mut metadata = Metadata::default();
        let mut value_offsets = Vec::new();
        let mut alignment = DEFAULT_ALIGNMENT;
        for index in 0..header.pairs {
            let pair = Pair::read(&mut reader, index, &mut metadata)?;
            if pair.key == ALIGNMENT_KEY {
                alignment = read_alignment(pair.value_offset, metadata.get(ALIGNMENT_KEY))
                    .map_err(|damage| damage.at(Place::Metadata(pair.key.to_owned())))?;
            }
            value_offsets.push(pair.value_offset);
        }

        let mut directory = Vec::new();
        for index in 0..header.tensors {
            directory.push(RawEntry::read(&mut reader, index)?);
        }

        // Not above the length of bytes in memory, so it fits.
        let head_len = reader.position() as usize;
        // Cannot overflow: both are far below 2⁶³.
        let data_start = reader.position().next_multiple_of(alignment.into());
        let tensors = directory
            .into_iter()
            .map(|raw| raw.locate(data_start, alignment, bytes.len() as u64))
            .collect::<Result<Vec<_>, _>>()?;
        check_overlap(&tensors)?;
        Ok(Self {
            version: header.version,
            metadata,
            value_offsets,
            tensors,
            head_len,
        })
    }
}

struct Header {
    version: u32,
    tensors: u64,
    pairs: u64,
}

impl Header {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Damage> {
        let found = reader.array("magic")?;
        if found != MAGIC {
            return Err(Damage {
                field: "magic",
                offset: 0,
                fault: Fault::NotGguf { found },
            });
        }
        let offset = reader.position();
        let version = reader.u32("version")?;
        let fault = match version {
            2 | 3 => None,
            1 => Some(Fault::Version1),
            // A small version in the other byte order.
            _ if version & 0xffff == 0 && version != 0 => Some(Fault::BigEndian {
                version: version.swap_bytes(),
            }),
            _ => Some(Fault::UnknownVersion { version }),
        };
        if let Some(fault) = fault {
            return Err(Damage {
                field: "version",
                offset,
                fault,
            });
        }
        let tensors = reader.count("tensor count", MIN_ENTRY_BYTES)? as u64;
        let pairs = reader.count("metadata count", MIN_PAIR_BYTES)? as u64;
        Ok(Self {
            version,
            tensors,
            pairs,
        })
    }
}

struct Pair<'a> {
    key: &'a str,
    value_offset: u64,
}

impl<'a> Pair<'a> {
    /// Reads one pair into `metadata`.
    fn read(
        reader: &mut Reader<'a>,
        index: u64,
        metadata: &mut Metadata,
    ) -> Result<Self, Malformed> {
        let offset = reader.position();
        let key = reader
            .str("key")
            .map_err(|damage| damage.at(Place::MetadataEntry(index)))?;
        let place = || Place::Metadata(key.to_owned());
        let value_offset = reader.position() + 4; // behind the type
        let value = Value::read(reader).map_err(|damage| damage.at(place()))?;
        if metadata.set(key, value).is_some() {
            return Err(Damage {
                field: "key",
                offset,
                fault: Fault::Duplicate,
            }
            .at(place()));
        }
        Ok(Self { key, value_offset })
    }
}

fn read_alignment(offset: u64, value: Option<&Value>) -> Result<u32, Damage> {
    let fault = match value {
        Some(&Value::U32(alignment)) if alignment.is_power_of_two() => return Ok(alignment),
        Some(&Value::U32(alignment)) => Fault::BadAlignment { alignment },
        Some(other) => Fault::WrongType {
            found: describe(other),
            wanted: "u32",
        },
        None => return Ok(DEFAULT_ALIGNMENT),
    };
    Err(Damage {
        field: "value",
        offset,
        fault,
    })
}

/// A tensor entry before its data is located: that needs the end of the directory.
struct RawEntry {
    name: String,
    offset: u64,
    shape: Vec<u64>,
    format: Format,
    data_bytes: u64,
    data_offset: u64,
    data_offset_at: u64,
}

impl RawEntry {
    fn read(reader: &mut Reader<'_>, index: u64) -> Result<Self, Malformed> {
        let offset = reader.position();
        let name = reader
            .str("name")
            .map_err(|damage| damage.at(Place::TensorEntry(index)))?;
        Self::read_rest(reader, name, offset)
            .map_err(|damage| damage.at(Place::Tensor(name.to_owned())))
    }

    fn read_rest(reader: &mut Reader<'_>, name: &str, offset: u64) -> Result<Self, Damage> {
        let count_at = reader.position();
        let count = reader.u32("number of dimensions")?;
        let limit = MAX_DIMENSIONS;
        if count as usize > limit {
            let fault = Fault::TooManyDimensions { count, limit };
            return Err(Damage {
                field: "number of dimensions",
                offset: count_at,
                fault,
            });
        }
        let dimensions_at = reader.position();
        let mut shape = Vec::with_capacity(count as usize);
        for axis in 0..count as usize {
            let offset = reader.position();
            let size = reader.u64("dimension")?;
            if size == 0 {
                return Err(Damage {
                    field: "dimension",
                    offset,
                    fault: Fault::ZeroDimension { axis },
                });
            }
            shape.push(size);
        }
        let format_at = reader.position();
        let id = reader.u32("format")?;
        let format = Format::read(id).map_err(|fault| Damage {
            field: "format",
            offset: format_at,
            fault,
        })?;
        let data_bytes = data_bytes(&shape, format).map_err(|fault| Damage {
            field: "dimensions",
            offset: dimensions_at,
            fault,
        })?;
        let data_offset_at = reader.position();
        let data_offset = reader.u64("data offset")?;
        Ok(Self {
            name: name.to_owned(),
            offset,
            shape,
            format,
            data_bytes,
            data_offset,
            data_offset_at,
        })
    }

    fn locate(self, data_start: u64, alignment: u32, file_len: u64) -> Result<Entry, Malformed> {
        let fault = match data_range(data_start, self.data_offset, self.data_bytes, file_len) {
            Some(_) if !self.data_offset.is_multiple_of(alignment.into()) => Fault::Misaligned {
                offset: self.data_offset,
                alignment,
            },
            Some(data) => {
                let Self {
                    name,
                    offset,
                    shape,
                    format,
                    ..
                } = self;
                return Ok(Entry {
                    name,
                    offset,
                    shape,
                    format,
                    data,
                });
            }
            None => Fault::OutsideFile {
                offset: self.data_offset,
                len: self.data_bytes,
                available: file_len.saturating_sub(data_start),
            },
        };
        Err(Damage {
            field: "data offset",
            offset: self.data_offset_at,
            fault,
        }
        .at(Place::Tensor(self.name)))
    }
}

/// Bytes of a tensor's data.
fn data_bytes(shape: &[u64], format: Format) -> Result<u64, Fault> {
    let cols = shape.first().copied().unwrap_or(1);
    let block_len = format.block_len() as u64;
    if !cols.is_multiple_of(block_len) {
        return Err(Fault::PartialBlock { cols, format });
    }
    let elements = shape
        .iter()
        .try_fold(1_u64, |product, &size| product.checked_mul(size));
    elements
        .and_then(|elements| (elements / block_len).checked_mul(format.block_bytes() as u64))
        .ok_or(Fault::SizeOverflow)
}

/// The bytes of the file that hold a tensor's data, if it has them.
fn data_range(data_start: u64, data_offset: u64, len: u64, file_len: u64) -> Option<Range<usize>> {
    let start = data_start.checked_add(data_offset)?;
    let end = start.checked_add(len)?;
    // Not above the length of bytes in memory, so both fit.
    (end <= file_len).then_some(start as usize..end as usize)
}

fn check_overlap(tensors: &[Entry]) -> Result<(), Malformed> {
    let mut by_start: Vec<&Entry> = tensors.iter().collect();
    by_start.sort_unstable_by_key(|entry| entry.data.start);
    for pair in by_start.windows(2) {
        let [before, after] = pair else { continue };
        if after.data.start < before.data.end {
            let fault = Fault::Overlap {
                other: before.name.clone(),
            };
            let damage = Damage {
                field: "entry",
                offset: after.offset,
                fault,
            };
            return Err(damage.at(Place::Tensor(after.name.clone())));
        }
    }
    Ok(())
}
