//! What can be wrong with a model file. Every fault of its bytes names the file, the place, the
//! field and the byte offset.

use std::fmt;
use std::path::PathBuf;

use crate::Format;

/// Why a model file cannot be used, or a metadata value is not what the caller needs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused to open or map the file.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// One file of a split model is not where it should be.
    #[error("part {number} of {count} of this split model is missing: {}", path.display())]
    MissingPart {
        /// Where the part was looked for.
        path: PathBuf,
        /// Its number, from 1.
        number: u32,
        /// How many parts the model has.
        count: u32,
    },
    /// The bytes are not a GGUF file that this crate can read.
    #[error(transparent)]
    Malformed(Box<Malformed>),
    /// A required metadata key is absent.
    #[error("metadata {:?} is missing", Shown(key))]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A metadata value has another type, or does not fit the wanted one.
    #[error("metadata {:?} is {found}, expected {wanted}", Shown(key))]
    WrongType {
        /// The key.
        key: String,
        /// What the caller needs.
        wanted: &'static str,
        /// What the file has.
        found: String,
    },
}

/// A fault of the file's bytes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}{place}: {field} at byte {offset}: {fault}", FilePrefix(file.as_ref()))]
pub struct Malformed {
    /// The file, unless the bytes came from memory.
    pub file: Option<PathBuf>,
    /// The entry being read.
    pub place: Place,
    /// The field of that entry.
    pub field: &'static str,
    /// Where the field begins, from the start of the file.
    pub offset: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// The entry of a file in which a fault was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The fixed fields at the start.
    Header,
    /// The n-th metadata entry, before its key is known.
    MetadataEntry(u64),
    /// The metadata entry of this key.
    Metadata(String),
    /// The n-th entry of the tensor directory, before its name is known.
    TensorEntry(u64),
    /// The tensor of this name.
    Tensor(String),
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the messages say what each fault and its numbers are"
)]
pub enum Fault {
    #[error("needs {needed} bytes, the file has {remaining} left")]
    Truncated { needed: u64, remaining: u64 },
    #[error(
        "{count} entries of at least {min_bytes} bytes do not fit in the {remaining} bytes left"
    )]
    TooMany {
        count: u64,
        min_bytes: u64,
        remaining: u64,
    },
    #[error("not a GGUF file: it begins with \"{}\", expected \"GGUF\"", found.escape_ascii())]
    NotGguf { found: [u8; 4] },
    #[error("big-endian GGUF files are not supported (version {version})")]
    BigEndian { version: u32 },
    #[error("GGUF version 1 is not supported; convert the model again to get version 3")]
    Version1,
    #[error("GGUF version {version} is not supported; versions 2 and 3 are")]
    UnknownVersion { version: u32 },
    #[error("not UTF-8 after {valid} bytes")]
    NotUtf8 { valid: u64 },
    #[error("occurs twice")]
    Duplicate,
    #[error("unknown value type {id}")]
    UnknownValueType { id: u32 },
    #[error("arrays are nested deeper than {limit}")]
    NestedTooDeep { limit: usize },
    #[error("a boolean is 0 or 1, found {found}")]
    NotBool { found: u8 },
    #[error("alignment {alignment} is not a power of two")]
    BadAlignment { alignment: u32 },
    #[error("{count} dimensions, at most {limit} are supported")]
    TooManyDimensions { count: u32, limit: usize },
    #[error("dimension {axis} is 0")]
    ZeroDimension { axis: usize },
    #[error("the number of elements or bytes overflows")]
    SizeOverflow,
    #[error("{cols} columns are not a whole number of {format} blocks of {}", format.block_len())]
    PartialBlock { cols: u64, format: Format },
    #[error("unknown tensor format {id}")]
    UnknownFormat { id: u32 },
    #[error("tensor format {name} ({id}) is not supported")]
    UnsupportedFormat { id: u32, name: &'static str },
    #[error("{offset} is not a multiple of the alignment {alignment}")]
    Misaligned { offset: u64, alignment: u32 },
    #[error(
        "{offset} and {len} bytes of data reach beyond the {available} bytes of the data section"
    )]
    OutsideFile {
        offset: u64,
        len: u64,
        available: u64,
    },
    #[error("data overlaps that of tensor {:?}", Shown(other))]
    Overlap { other: String },
    #[error("is {found}, expected {wanted}")]
    WrongType { found: String, wanted: &'static str },
    #[error("a part of a split model must be opened by its path")]
    PartWithoutPath,
    #[error("a part of a split model must be named \"…-00001-of-{count:05}.gguf\"")]
    PartName { count: u32 },
    #[error("a part of a split model needs the key {key:?}")]
    MissingPartKey { key: &'static str },
    #[error("is {found}, expected {expected} from the file's name")]
    PartNumber { found: u64, expected: u64 },
    #[error("is {expected}, but the parts have {found} tensors")]
    PartTensors { found: u64, expected: u64 },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => write!(f, "header"),
            Self::MetadataEntry(index) => write!(f, "metadata entry {index}"),
            Self::Metadata(key) => write!(f, "metadata {:?}", Shown(key)),
            Self::TensorEntry(index) => write!(f, "tensor entry {index}"),
            Self::Tensor(name) => write!(f, "tensor {:?}", Shown(name)),
        }
    }
}

struct FilePrefix<'a>(Option<&'a PathBuf>);

impl fmt::Display for FilePrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .map_or(Ok(()), |path| write!(f, "{}: ", path.display()))
    }
}

/// A name out of a file: quoted, escaped and cut, because a hostile one may be long or hold
/// terminal control characters.
struct Shown<'a>(&'a str);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_CHARS: usize = 80;
        match self.0.char_indices().nth(SHOWN_CHARS) {
            Some((end, _)) => write!(f, "{:?}…", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}
