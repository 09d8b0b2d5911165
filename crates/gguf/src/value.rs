//! Metadata values: their types, their bytes, how they are shown.

use std::fmt;

use crate::Fault;
use crate::reader::{Damage, Reader};

/// Arrays of arrays may be this deep; no known writer goes beyond two.
const MAX_DEPTH: usize = 4;

/// The smallest array in a file: its element type and count.
const MIN_ARRAY_BYTES: u64 = 4 + 8;
/// The smallest string in a file: its length.
const MIN_STRING_BYTES: u64 = 8;

/// Byte strings stored end to end: a vocabulary has hundreds of thousands of them. They are text by
/// convention only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`, if there are that many.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index).expect("index below len"))
    }

    fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Damage> {
        let count = reader.count("array length", MIN_STRING_BYTES)?;
        let mut strings = Self {
            bytes: Vec::new(),
            ends: Vec::with_capacity(count),
        };
        for _ in 0..count {
            strings.push(reader.string("array element")?);
        }
        Ok(strings)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend((self.len() as u64).to_le_bytes());
        self.iter().for_each(|string| write_string(string, out));
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut all = Self::default();
        strings
            .into_iter()
            .for_each(|string| all.push(string.as_ref()));
        all
    }
}

impl fmt::Debug for Strings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(String::from_utf8_lossy))
            .finish()
    }
}

/// Length, then bytes: how GGUF writes every string.
pub(crate) fn write_string(string: &[u8], out: &mut Vec<u8>) {
    out.extend((string.len() as u64).to_le_bytes());
    out.extend(string);
}

/// From one row per numeric type: the enums, their readers and writers, and the conversions into
/// `Value`.
macro_rules! values {
    ($($variant:ident, $rust:ty, $id:literal, $name:literal;)*) => {
        /// The type of a metadata value. The discriminant is the file's id for it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "named after what they hold")]
        pub enum ValueType { $($variant = $id,)* Bool = 7, String = 8, Array = 9 }

        impl ValueType {
            fn from_id(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(Self::$variant),)*
                    7 => Some(Self::Bool),
                    8 => Some(Self::String),
                    9 => Some(Self::Array),
                    _ => None,
                }
            }
        }

        impl fmt::Display for ValueType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $name,)*
                    Self::Bool => "bool",
                    Self::String => "string",
                    Self::Array => "array",
                })
            }
        }

        /// A metadata value. Strings are bytes: writers promise UTF-8, some files break the
        /// promise.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "named after what they hold")]
        pub enum Value { $($variant($rust),)* Bool(bool), String(Vec<u8>), Array(Array) }

        impl Value {
            /// The value's type.
            pub fn value_type(&self) -> ValueType {
                match self {
                    $(Self::$variant(_) => ValueType::$variant,)*
                    Self::Bool(_) => ValueType::Bool,
                    Self::String(_) => ValueType::String,
                    Self::Array(_) => ValueType::Array,
                }
            }

            /// Reads a type id and the value behind it.
            pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Damage> {
                Ok(match read_type(reader, "value type")? {
                    $(ValueType::$variant => Self::$variant(<$rust>::from_le_bytes(reader.array("value")?)),)*
                    ValueType::Bool => Self::Bool(read_bool(reader, "value")?),
                    ValueType::String => Self::String(reader.string("value")?.to_vec()),
                    ValueType::Array => Self::Array(Array::read(reader, 1)?),
                })
            }

            pub(crate) fn write(&self, out: &mut Vec<u8>) {
                out.extend((self.value_type() as u32).to_le_bytes());
                match self {
                    $(Self::$variant(value) => out.extend(value.to_le_bytes()),)*
                    Self::Bool(value) => out.push(u8::from(*value)),
                    Self::String(value) => write_string(value, out),
                    Self::Array(value) => value.write(out),
                }
            }
        }

        /// An array of values of one type. Arrays in an array may each have their own element type.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "named after what they hold")]
        pub enum Array { $($variant(Vec<$rust>),)* Bool(Vec<bool>), String(Strings), Array(Vec<Array>) }

        impl Array {
            /// The type of the elements, known even when there are none.
            pub fn element_type(&self) -> ValueType {
                match self {
                    $(Self::$variant(_) => ValueType::$variant,)*
                    Self::Bool(_) => ValueType::Bool,
                    Self::String(_) => ValueType::String,
                    Self::Array(_) => ValueType::Array,
                }
            }

            /// Number of elements.
            pub fn len(&self) -> usize {
                match self {
                    $(Self::$variant(values) => values.len(),)*
                    Self::Bool(values) => values.len(),
                    Self::String(strings) => strings.len(),
                    Self::Array(arrays) => arrays.len(),
                }
            }

            fn read(reader: &mut Reader<'_>, depth: usize) -> Result<Self, Damage> {
                let offset = reader.position();
                Ok(match read_type(reader, "array element type")? {
                    $(ValueType::$variant => Self::$variant(read_many(
                        reader,
                        size_of::<$rust>(),
                        |reader| Ok(<$rust>::from_le_bytes(reader.array("array element")?)),
                    )?),)*
                    ValueType::Bool => Self::Bool(read_many(reader, 1, |reader| read_bool(reader, "array element"))?),
                    ValueType::String => Self::String(Strings::read(reader)?),
                    ValueType::Array if depth == MAX_DEPTH => {
                        return Err(Damage {
                            field: "array element type",
                            offset,
                            fault: Fault::NestedTooDeep { limit: MAX_DEPTH },
                        });
                    }
                    ValueType::Array => {
                        // An `Array` takes more memory than an empty array in a file: grow with
                        // what is really there.
                        let count = reader.count("array length", MIN_ARRAY_BYTES)?;
                        let mut arrays = Vec::new();
                        for _ in 0..count {
                            arrays.push(Self::read(reader, depth + 1)?);
                        }
                        Self::Array(arrays)
                    }
                })
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend((self.element_type() as u32).to_le_bytes());
                match self {
                    Self::String(strings) => return strings.write(out),
                    _ => out.extend((self.len() as u64).to_le_bytes()),
                }
                match self {
                    $(Self::$variant(values) => values.iter().for_each(|value| out.extend(value.to_le_bytes())),)*
                    Self::Bool(values) => out.extend(values.iter().map(|&value| u8::from(value))),
                    Self::String(_) => {}
                    Self::Array(arrays) => arrays.iter().for_each(|array| array.write(out)),
                }
            }

            fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant(values) => show_list(f, values.iter().copied()),)*
                    Self::Bool(values) => show_list(f, values.iter().copied()),
                    Self::String(strings) => show_list(f, strings.iter().map(ShownString)),
                    Self::Array(arrays) => show_list(f, arrays.iter()),
                }
            }
        }

        impl fmt::Display for Value {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant(value) => write!(f, "{value}"),)*
                    Self::Bool(value) => write!(f, "{value}"),
                    Self::String(value) => write!(f, "{}", ShownString(value)),
                    Self::Array(array) => write!(f, "{array}"),
                }
            }
        }

        $(
            impl From<$rust> for Value {
                fn from(value: $rust) -> Self {
                    Self::$variant(value)
                }
            }

            impl From<Vec<$rust>> for Value {
                fn from(values: Vec<$rust>) -> Self {
                    Self::Array(Array::$variant(values))
                }
            }
        )*
    };
}

// Ids and types: `gguf_type` in ggml's `gguf.h`; the ids 7, 8 and 9 are bool, string and array.
values! {
    U8, u8, 0, "u8";
    I8, i8, 1, "i8";
    U16, u16, 2, "u16";
    I16, i16, 3, "i16";
    U32, u32, 4, "u32";
    I32, i32, 5, "i32";
    F32, f32, 6, "f32";
    U64, u64, 10, "u64";
    I64, i64, 11, "i64";
    F64, f64, 12, "f64";
}

impl Array {
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// `[1, 2, 3]`, only the first elements of a long one.
impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(f)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.into())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::String(value.into())
    }
}

impl From<Array> for Value {
    fn from(value: Array) -> Self {
        Self::Array(value)
    }
}

impl From<Vec<bool>> for Value {
    fn from(values: Vec<bool>) -> Self {
        Self::Array(Array::Bool(values))
    }
}

impl From<Vec<&str>> for Value {
    fn from(values: Vec<&str>) -> Self {
        Self::Array(Array::String(values.into_iter().collect()))
    }
}

impl From<Vec<String>> for Value {
    fn from(values: Vec<String>) -> Self {
        Self::Array(Array::String(values.into_iter().collect()))
    }
}

impl From<Strings> for Value {
    fn from(values: Strings) -> Self {
        Self::Array(Array::String(values))
    }
}

fn read_type(reader: &mut Reader<'_>, field: &'static str) -> Result<ValueType, Damage> {
    let offset = reader.position();
    let id = reader.u32(field)?;
    ValueType::from_id(id).ok_or(Damage {
        field,
        offset,
        fault: Fault::UnknownValueType { id },
    })
}

fn read_bool(reader: &mut Reader<'_>, field: &'static str) -> Result<bool, Damage> {
    let offset = reader.position();
    match reader.array(field)? {
        [0] => Ok(false),
        [1] => Ok(true),
        [found] => Err(Damage {
            field,
            offset,
            fault: Fault::NotBool { found },
        }),
    }
}

/// A count and that many elements of `size` bytes, in a file as in memory.
fn read_many<T>(
    reader: &mut Reader<'_>,
    size: usize,
    read: impl Fn(&mut Reader<'_>) -> Result<T, Damage>,
) -> Result<Vec<T>, Damage> {
    let count = reader.count("array length", size as u64)?;
    (0..count).map(|_| read(reader)).collect()
}

struct ShownString<'a>(&'a [u8]);

impl fmt::Display for ShownString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.0))
    }
}

fn show_list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    values: impl ExactSizeIterator<Item = T>,
) -> fmt::Result {
    const SHOWN: usize = 8;
    let len = values.len();
    f.write_str("[")?;
    for (index, value) in values.take(SHOWN).enumerate() {
        write!(f, "{}{value}", if index == 0 { "" } else { ", " })?;
    }
    if len > SHOWN {
        write!(f, ", … {len} in all]")
    } else {
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests;
