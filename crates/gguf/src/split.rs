//! Models cut into several files, as `llama-gguf-split` does it.
//!
//! The parts are named `<prefix>-00001-of-00003.gguf` and so on. Each has the keys `split.no` (from
//! 0) and `split.count`; the first holds the model's metadata too. Tensors are spread over the
//! parts, and `split.tensors.count` is their number in all.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::metadata::{describe, integer};
use crate::part::Part;
use crate::{Error, Fault};

pub(crate) const NUMBER_KEY: &str = "split.no";
pub(crate) const COUNT_KEY: &str = "split.count";
pub(crate) const TENSORS_KEY: &str = "split.tensors.count";

/// The file name of a part of a split model, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartName {
    /// What comes before the numbers.
    pub prefix: String,
    /// From 1 to `count`.
    pub number: u32,
    /// How many parts there are.
    pub count: u32,
}

impl PartName {
    /// Reads the name of the file at `path`; `None` when it does not follow the pattern.
    pub fn parse(path: &Path) -> Option<Self> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        (1..=count).contains(&number).then(|| Self {
            prefix: prefix.to_owned(),
            number,
            count,
        })
    }

    /// The path of another part in the same folder.
    fn sibling(&self, path: &Path, number: u32) -> PathBuf {
        path.with_file_name(
            Self {
                number,
                ..self.clone()
            }
            .to_string(),
        )
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{:05}-of-{:05}.gguf",
            self.prefix, self.number, self.count
        )
    }
}

fn five_digits(text: &str) -> Option<u32> {
    (text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

/// The parts of the model to which `part` belongs, in order; just `part` when it is a whole model.
pub(crate) fn gather(part: Part) -> Result<Vec<Part>, Error> {
    let count = number_of(&part, COUNT_KEY)?.unwrap_or(1);
    if count <= 1 {
        return Ok(vec![part]);
    }
    let Some(path) = part.path.clone() else {
        return Err(part.value_error(COUNT_KEY, Fault::PartWithoutPath));
    };
    // No more than five digits fit in the name, so a count that does not fit is not the name's.
    let Some(name) = PartName::parse(&path) else {
        return Err(part.value_error(
            COUNT_KEY,
            Fault::PartName {
                count: count.try_into().unwrap_or(u32::MAX),
            },
        ));
    };
    let mut opened = Some(part);
    let mut parts = Vec::new();
    for number in 1..=name.count {
        let part = match opened.take_if(|_| number == name.number) {
            Some(part) => part,
            None => open_sibling(&name, &path, number)?,
        };
        check_number(&part, COUNT_KEY, name.count)?;
        check_number(&part, NUMBER_KEY, number - 1)?;
        parts.push(part);
    }
    check_tensors(&parts)?;
    Ok(parts)
}

fn open_sibling(name: &PartName, path: &Path, number: u32) -> Result<Part, Error> {
    let path = name.sibling(path, number);
    Part::open(&path).map_err(|error| match error {
        Error::Io { source, path } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::MissingPart {
                path,
                number,
                count: name.count,
            }
        }
        other => other,
    })
}

fn check_number(part: &Part, key: &'static str, expected: u32) -> Result<(), Error> {
    let found = number_of(part, key)?.ok_or_else(|| part.missing_key(key))?;
    if found == u64::from(expected) {
        return Ok(());
    }
    Err(part.value_error(
        key,
        Fault::PartNumber {
            found,
            expected: expected.into(),
        },
    ))
}

fn check_tensors(parts: &[Part]) -> Result<(), Error> {
    let found: usize = parts.iter().map(|part| part.tensors.len()).sum();
    match number_of(&parts[0], TENSORS_KEY)? {
        Some(expected) if expected != found as u64 => Err(parts[0].value_error(
            TENSORS_KEY,
            Fault::PartTensors {
                found: found as u64,
                expected,
            },
        )),
        _ => Ok(()),
    }
}

fn number_of(part: &Part, key: &str) -> Result<Option<u64>, Error> {
    let Some(value) = part.metadata.get(key) else {
        return Ok(None);
    };
    match integer(value).and_then(|number| number.try_into().ok()) {
        Some(number) => Ok(Some(number)),
        None => {
            let wanted = "an integer without sign";
            Err(part.value_error(
                key,
                Fault::WrongType {
                    found: describe(value),
                    wanted,
                },
            ))
        }
    }
}

#[cfg(test)]
mod tests;
