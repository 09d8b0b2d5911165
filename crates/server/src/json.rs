//! Reading a request's fields: every complaint names the field by its path, as in `messages[2].content`.
//!
//! A body is parsed into a [`Value`] first, so that unknown fields pass, the last of two equal keys counts, and one
//! bad field never hides behind another's error. `null` means the same as an absent field, as it does in OpenAI's API.

use serde_json::{Map, Value};

use crate::error::ApiError;

/// A field of the request and where it stands. Absent fields exist too: reading them gives `None`.
pub(crate) struct Field<'a> {
    path: String,
    value: Option<&'a Value>,
}

impl<'a> Field<'a> {
    /// The whole body, which must be an object.
    pub(crate) fn body(value: &'a Value) -> Result<Self, ApiError> {
        match value {
            Value::Object(_) => Ok(Self {
                path: String::new(),
                value: Some(value),
            }),
            _ => Err(ApiError::NoObject { found: kind(value) }),
        }
    }

    /// The member `key` of an object; absent where this is no object.
    pub(crate) fn get(&self, key: &str) -> Field<'a> {
        let path = if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        };
        let value = self
            .value
            .and_then(|value| value.get(key))
            .filter(|value| !value.is_null());
        Field { path, value }
    }

    /// The first of several names of one thing that is there; the first name where none is.
    pub(crate) fn any_of(&self, keys: &[&str]) -> Field<'a> {
        let mut fields = keys.iter().map(|key| self.get(key));
        let first = fields.next().expect("a field has a name");
        if first.is_present() {
            first
        } else {
            fields.find(Field::is_present).unwrap_or(first)
        }
    }

    pub(crate) fn is_present(&self) -> bool {
        self.value.is_some()
    }

    pub(crate) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    pub(crate) fn string(&self) -> Result<Option<&'a str>, ApiError> {
        self.typed("a string", Value::as_str)
    }

    /// A string that must be there.
    pub(crate) fn required(&self) -> Result<&'a str, ApiError> {
        self.string()?.ok_or_else(|| self.missing())
    }

    pub(crate) fn bool(&self) -> Result<Option<bool>, ApiError> {
        self.typed("a boolean", Value::as_bool)
    }

    pub(crate) fn map(&self) -> Result<Option<&'a Map<String, Value>>, ApiError> {
        self.typed("an object", Value::as_object)
    }

    pub(crate) fn array(&self) -> Result<Option<&'a [Value]>, ApiError> {
        self.typed("an array", |value| value.as_array().map(Vec::as_slice))
    }

    /// The element `index` of an array; absent where there is none.
    pub(crate) fn item(&self, index: usize) -> Field<'a> {
        let value = self
            .value
            .and_then(|value| value.get(index))
            .filter(|value| !value.is_null());
        Field {
            path: format!("{}[{index}]", self.path),
            value,
        }
    }

    /// The elements of an array, each with its own path.
    pub(crate) fn items(&self) -> Result<Option<impl Iterator<Item = Field<'a>>>, ApiError> {
        let items = self.array()?;
        let path = &self.path;
        Ok(items.map(|items| {
            items.iter().enumerate().map(move |(i, value)| Field {
                path: format!("{path}[{i}]"),
                value: Some(value),
            })
        }))
    }

    /// A whole number from `min` to `max`; one written as `16.0` or `1e3` counts.
    pub(crate) fn integer(&self, min: i64, max: i64) -> Result<Option<i64>, ApiError> {
        let Some(number) = self.typed("an integer", whole)? else {
            return Ok(None);
        };
        match i64::try_from(number) {
            Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(self.error(format!("must be from {min} to {max}, got {number}"))),
        }
    }

    /// A number. What it may be is the engine's to say; that it is finite, is said here.
    pub(crate) fn number(&self) -> Result<Option<f32>, ApiError> {
        let Some(number) = self.typed("a number", Value::as_f64)? else {
            return Ok(None);
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "sampling works in f32; what overflows is refused"
        )]
        let narrow = number as f32;
        if narrow.is_finite() {
            Ok(Some(narrow))
        } else {
            Err(self.error(format!("out of range: {number}")))
        }
    }

    /// A 64-bit seed: any whole number that fits signed or unsigned; `-1` asks for a random one.
    pub(crate) fn seed(&self) -> Result<Option<u64>, ApiError> {
        let Some(number) = self.typed("an integer", whole)? else {
            return Ok(None);
        };
        if number == -1 {
            return Ok(None);
        }
        #[expect(
            clippy::cast_sign_loss,
            reason = "a negative seed is as good as any other bit pattern"
        )]
        i64::try_from(number)
            .map(|seed| seed as u64)
            .or_else(|_| u64::try_from(number))
            .map(Some)
            .map_err(|_| self.error(format!("must fit in 64 bits, got {number}")))
    }

    /// A list of token ids; the first wrong element is named.
    pub(crate) fn tokens(&self) -> Result<Vec<u32>, ApiError> {
        let items = self.array()?.unwrap_or_default();
        let id = |item: &Value| whole(item).and_then(|id| u32::try_from(id).ok());
        let named = |i: usize| {
            self.item(i)
                .error(format!("must be a token id, got {}", brief(&items[i])))
        };
        items
            .iter()
            .enumerate()
            .map(|(i, item)| id(item).ok_or_else(|| named(i)))
            .collect()
    }

    /// The complaint that a field which must be there is missing.
    pub(crate) fn missing(&self) -> ApiError {
        self.error("required")
    }

    /// A complaint about this field.
    pub(crate) fn error(&self, why: impl Into<String>) -> ApiError {
        ApiError::Field {
            path: self.path.clone(),
            why: why.into(),
        }
    }

    /// The complaint that the field asks for something that this server does not do.
    pub(crate) fn unsupported(&self, what: &str) -> ApiError {
        self.error(format!("{what} is not supported"))
    }

    /// The complaint that the field holds another kind of value than `expected`.
    pub(crate) fn wrong_type(&self, expected: &str) -> ApiError {
        self.error(format!(
            "must be {expected}, got {}",
            self.value.map_or("nothing", kind)
        ))
    }

    fn typed<T>(
        &self,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.value else {
            return Ok(None);
        };
        read(value)
            .map(Some)
            .ok_or_else(|| self.wrong_type(expected))
    }
}

/// The value as a whole number, where it is one. `f64` holds every integer up to 2^53, beyond which JSON's writers
/// disagree anyway.
fn whole(value: &Value) -> Option<i128> {
    let number = value.as_number()?;
    if let Some(number) = number.as_i64() {
        return Some(i128::from(number));
    }
    if let Some(number) = number.as_u64() {
        return Some(i128::from(number));
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a whole f64 below 1e30 fits in an i128"
    )]
    number
        .as_f64()
        .filter(|number| number.fract() == 0.0 && number.abs() < 1e30)
        .map(|number| number as i128)
}

/// A number as it is, another value by its kind: a complaint must not repeat a long text.
fn brief(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        other => kind(other).to_owned(),
    }
}

/// What a person would call this kind of value.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
