//! The metadata of a model: ordered key-value pairs with typed getters.

use std::collections::HashMap;

use crate::{Array, Error, Strings, Value};

/// Key-value pairs in file order, keys unique.
///
/// The typed getters return `Ok(None)` for an absent key and an error naming the key for a value of
/// another type. Integers of any width and sign convert when the value fits. The `require_`
/// variants make an absent key an error too.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// The value of `key`, as the file has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&index| &self.entries[index].1)
    }

    /// All pairs in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets `key`; a new one goes to the end. Returns the value it had.
    pub fn set(&mut self, key: &str, value: Value) -> Option<Value> {
        match self.index.get(key) {
            Some(&index) => Some(std::mem::replace(&mut self.entries[index].1, value)),
            None => {
                self.index.insert(key.to_owned(), self.entries.len());
                self.entries.push((key.to_owned(), value));
                None
            }
        }
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(Error::WrongType {
                key: key.to_owned(),
                wanted,
                found: describe(value),
            }),
        }
    }
}

/// A pair of getters per row: name, name of the requiring variant, type, conversion, what is wanted
/// in words.
macro_rules! getters {
    ($($name:ident, $require:ident, $type:ty, $convert:expr, $wanted:literal;)*) => {
        impl Metadata {
            $(
                #[doc = concat!("The value of `key` as ", $wanted, ", `None` when absent.")]
                pub fn $name(&self, key: &str) -> Result<Option<$type>, Error> {
                    self.typed(key, $wanted, $convert)
                }

                #[doc = concat!("The value of `key` as ", $wanted, ", an error when absent.")]
                pub fn $require(&self, key: &str) -> Result<$type, Error> {
                    self.$name(key)?.ok_or_else(|| Error::MissingKey { key: key.to_owned() })
                }
            )*
        }
    };
}

getters! {
    u32, require_u32, u32, |value| integer(value)?.try_into().ok(), "an integer of 32 bits without sign";
    u64, require_u64, u64, |value| integer(value)?.try_into().ok(), "an integer of 64 bits without sign";
    f32, require_f32, f32, float, "a floating-point number";
    bool, require_bool, bool, boolean, "a boolean";
    str, require_str, &str, text, "a UTF-8 string";
    strings, require_strings, Vec<&str>, texts, "an array of UTF-8 strings";
    byte_strings, require_byte_strings, &Strings, byte_strings, "an array of strings";
    u32s, require_u32s, Vec<u32>, integers, "an array of integers of 32 bits without sign";
    i32s, require_i32s, Vec<i32>, integers, "an array of integers of 32 bits with sign";
    f32s, require_f32s, Vec<f32>, floats, "an array of floating-point numbers";
    bools, require_bools, &[bool], booleans, "an array of booleans";
}

pub(crate) fn integer(value: &Value) -> Option<i128> {
    Some(match *value {
        Value::U8(n) => n.into(),
        Value::I8(n) => n.into(),
        Value::U16(n) => n.into(),
        Value::I16(n) => n.into(),
        Value::U32(n) => n.into(),
        Value::I32(n) => n.into(),
        Value::U64(n) => n.into(),
        Value::I64(n) => n.into(),
        _ => return None,
    })
}

fn integers<T: TryFrom<i128>>(value: &Value) -> Option<Vec<T>> {
    fn fitted<S: Copy + Into<i128>, T: TryFrom<i128>>(values: &[S]) -> Option<Vec<T>> {
        values.iter().map(|&n| T::try_from(n.into()).ok()).collect()
    }
    let Value::Array(array) = value else {
        return None;
    };
    match array {
        Array::U8(values) => fitted(values),
        Array::I8(values) => fitted(values),
        Array::U16(values) => fitted(values),
        Array::I16(values) => fitted(values),
        Array::U32(values) => fitted(values),
        Array::I32(values) => fitted(values),
        Array::U64(values) => fitted(values),
        Array::I64(values) => fitted(values),
        _ => None,
    }
}

fn float(value: &Value) -> Option<f32> {
    match *value {
        Value::F32(x) => Some(x),
        Value::F64(x) => Some(x as f32),
        _ => None,
    }
}

fn floats(value: &Value) -> Option<Vec<f32>> {
    match value {
        Value::Array(Array::F32(values)) => Some(values.clone()),
        Value::Array(Array::F64(values)) => Some(values.iter().map(|&x| x as f32).collect()),
        _ => None,
    }
}

fn boolean(value: &Value) -> Option<bool> {
    match *value {
        Value::Bool(value) => Some(value),
        _ => None,
    }
}

fn booleans(value: &Value) -> Option<&[bool]> {
    match value {
        Value::Array(Array::Bool(values)) => Some(values),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::String(bytes) => str::from_utf8(bytes).ok(),
        _ => None,
    }
}

fn texts(value: &Value) -> Option<Vec<&str>> {
    byte_strings(value)?
        .iter()
        .map(|bytes| str::from_utf8(bytes).ok())
        .collect()
}

fn byte_strings(value: &Value) -> Option<&Strings> {
    match value {
        Value::Array(Array::String(strings)) => Some(strings),
        _ => None,
    }
}

/// The type found, with the value where that is short and may be the reason.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Array(array) => format!("an array of {} {}", array.len(), array.element_type()),
        Value::String(bytes) => match str::from_utf8(bytes) {
            Ok(_) => "a string".to_owned(),
            Err(_) => "a string that is not UTF-8".to_owned(),
        },
        number => format!("{number} ({})", number.value_type()),
    }
}

#[cfg(test)]
mod tests;
