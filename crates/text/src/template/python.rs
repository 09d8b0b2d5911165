//! What templates written for Python expect: `str()`, `repr()` and `json.dumps()` of values, and a few functions.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Serde, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// How `json.dumps` writes; the defaults are those of transformers' `tojson`.
struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    separators: (String, String),
    sort_keys: bool,
}

/// The filter `tojson`, as transformers defines it: not HTML-safe, not ASCII.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature of a filter with keyword arguments"
)]
pub(super) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        Some(indent) if !indent.is_none() && !indent.is_undefined() => {
            Some(match indent.as_str() {
                Some(text) => text.to_owned(),
                None => " ".repeat(usize::try_from(indent.clone())?.min(64)),
            })
        }
        _ => None,
    };
    let separators = match kwargs.get::<Option<Vec<String>>>("separators")?.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        _ if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        _ => (", ".to_owned(), ": ".to_owned()),
    };
    let style = Style {
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent,
        separators,
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    style.write(&mut out, value, 0)?;
    Ok(Value::from_safe_string(out))
}

/// JSON as `json.dumps` writes it with `ensure_ascii=False`.
pub(super) fn dumps(value: &serde_json::Value) -> String {
    let style = Style {
        ensure_ascii: false,
        indent: None,
        separators: (", ".to_owned(), ": ".to_owned()),
        sort_keys: false,
    };
    let mut out = String::new();
    let written = style.write(&mut out, &Value::from(Serde(value)), 0);
    written.expect("JSON has no other kinds of values");
    out
}

/// The filter `string` and the printing of expressions: Python's `str()`.
pub(super) fn str(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::String => out.push_str(value.as_str().unwrap_or_default()),
        _ => repr(&mut out, value)?,
    }
    Ok(out)
}

/// The function `raise_exception`.
pub(super) fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// The function `strftime_now`: the local time.
pub(super) fn strftime_now(format: &str) -> Result<String, Error> {
    jiff::fmt::strtime::format(format, &jiff::Zoned::now())
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
}

impl Style {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => write_number(out, value),
            ValueKind::String => self.write_string(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    self.separate(out, i, depth + 1);
                    self.write(out, item, depth + 1)?;
                }
                self.close(out, items.len(), depth);
                out.push(']');
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                out.push('{');
                for (i, key) in keys.iter().enumerate() {
                    self.separate(out, i, depth + 1);
                    self.write_string(out, &str(key)?);
                    out.push_str(&self.separators.1);
                    self.write(out, &value.get_item(key)?, depth + 1)?;
                }
                self.close(out, keys.len(), depth);
                out.push('}');
            }
            kind => {
                return Err(Error::new(
                    ErrorKind::BadSerialization,
                    format!("Object of type {kind} is not JSON serializable"),
                ));
            }
        }
        Ok(())
    }

    /// What stands before item `i`.
    fn separate(&self, out: &mut String, i: usize, depth: usize) {
        if i > 0 {
            out.push_str(&self.separators.0);
        }
        self.new_line(out, depth);
    }

    /// What stands after the last of `count` items.
    fn close(&self, out: &mut String, count: usize, depth: usize) {
        if count > 0 {
            self.new_line(out, depth);
        }
    }

    fn new_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn write_string(&self, out: &mut String, text: &str) {
        let quoted = serde_json::Value::from(text).to_string();
        if !self.ensure_ascii {
            out.push_str(&quoted);
            return;
        }
        for c in quoted.chars() {
            if c.is_ascii() {
                out.push(c);
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}").expect("a String takes everything");
                }
            }
        }
    }
}

/// A number as Python writes it.
fn write_number(out: &mut String, value: &Value) {
    let (true, Ok(number)) = (!value.is_integer(), f64::try_from(value.clone())) else {
        out.push_str(&value.to_string());
        return;
    };
    if !number.is_finite() {
        out.push_str(if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        });
        return;
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let text = if (-4..16).contains(&exponent) {
        let plain = number.to_string();
        if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    };
    out.push_str(&text);
}

/// Python's `repr()`.
fn repr(out: &mut String, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(out, value),
        ValueKind::String => repr_string(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(out, &item)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(out, &key)?;
                out.push_str(": ");
                repr(out, &value.get_item(&key)?)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn repr_string(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_ascii_control() => {
                write!(out, "\\x{:02x}", u32::from(c)).expect("a String takes everything");
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}
