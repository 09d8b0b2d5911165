//! API keys: who may ask, how much, and by what name the log and the scheduler know them.

use std::fmt;
use std::num::NonZeroU32;

use andante_engine::Tenant;

use crate::limits::Limits;
use crate::page;

/// A key, its holder's name, and how much may be asked with it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    name: String,
    secret: String,
    limits: Limits,
}

/// What is wrong with a key as it is written. The secret is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A name, or limits, of no key.
    #[error("there is no secret; a key is written SECRET or NAME:SECRET")]
    NoSecret,
    /// Something stands behind the secret that is no limit.
    #[error("behind the secret only limits may stand: parallel=N, rpm=N, tpm=N")]
    NoLimit,
    /// A limit that is no number, or no limit that anybody could keep to.
    #[error("`{name}` takes a whole number from 1 to {}", u32::MAX)]
    NoNumber {
        /// The limit's name.
        name: &'static str,
    },
    /// A limit with two numbers.
    #[error("`{name}` is given twice")]
    Twice {
        /// The limit's name.
        name: &'static str,
    },
}

/// What is wrong with a file of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct KeyFileError {
    /// The first line that is wrong, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub error: KeyError,
}

impl ApiKey {
    /// A key by its own name, which tells it apart and gives nothing of it away.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self {
            name: Tenant::of_key(secret).name().to_owned(),
            secret: secret.to_owned(),
            limits: Limits::default(),
        }
    }

    /// A key as it is written in a file or an argument: `SECRET` or `NAME:SECRET`, and behind it, after spaces, its limits, each
    /// at most once: `parallel=N` requests at once, `rpm=N` requests a minute, `tpm=N` tokens a minute.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let (name, rest) = text.split_once(':').unwrap_or(("", text));
        let mut words = rest.split_whitespace();
        // With a limit for its secret, a line whose secret was forgotten would be a key that is easily guessed.
        let is_secret = |word: &&str| limit(&mut Limits::default(), word).is_none();
        let secret = words.next().filter(is_secret).ok_or(KeyError::NoSecret)?;
        let mut key = Self::new(secret);
        let name = name.trim();
        if !name.is_empty() {
            name.clone_into(&mut key.name);
        }
        for word in words {
            let (name, limit, most) = limit(&mut key.limits, word).ok_or(KeyError::NoLimit)?;
            let most = most.parse().map_err(|_| KeyError::NoNumber { name })?;
            if limit.replace(most).is_some() {
                return Err(KeyError::Twice { name });
            }
        }
        Ok(key)
    }

    /// The keys of a file: one a line; empty lines and those that begin with `#` mean nothing.
    pub fn parse_lines(text: &str) -> Result<Vec<Self>, KeyFileError> {
        let lines = text.lines().map(str::trim).zip(1..);
        lines
            .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'))
            .map(|(text, line)| Self::parse(text).map_err(|error| KeyFileError { line, error }))
            .collect()
    }

    /// The holder's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Whether `given` is the secret. The time that this takes depends on the lengths alone.
    fn is(&self, given: &str) -> bool {
        let (secret, given) = (self.secret.as_bytes(), given.as_bytes());
        let pairs = secret.iter().zip(given);
        let difference = pairs.fold(0, |difference, (a, b)| difference | (a ^ b));
        secret.len() == given.len() && std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey")
            .field("name", &self.name)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The limit of `limits` that a word names, and the number that the word gives it.
fn limit<'a>(
    limits: &'a mut Limits,
    word: &'a str,
) -> Option<(&'static str, &'a mut Option<NonZeroU32>, &'a str)> {
    let (name, most) = word.split_once('=')?;
    match name {
        "parallel" => Some(("parallel", &mut limits.parallel, most)),
        "rpm" => Some(("rpm", &mut limits.requests, most)),
        "tpm" => Some(("tpm", &mut limits.tokens, most)),
        _ => None,
    }
}

/// The key among `keys` that was given.
pub(crate) fn find<'a>(keys: &'a [ApiKey], given: &str) -> Option<&'a ApiKey> {
    position(keys, given).map(|place| &keys[place])
}

/// Its place among them.
pub(crate) fn position(keys: &[ApiKey], given: &str) -> Option<usize> {
    keys.iter().position(|key| key.is(given))
}

/// Whether a path is there for everybody: whether the server works, what it has to offer, the files of its page.
pub(crate) fn is_public(path: &str) -> bool {
    if path.starts_with(page::FOLDER) {
        return true;
    }
    let path = path.strip_prefix("/v1").unwrap_or(path);
    matches!(
        path,
        "/" | "/health"
            | "/health/live"
            | "/health/ready"
            | "/models"
            | "/version"
            | "/openapi.json"
            | "/api/hello"
            | "/api/tags"
            | "/api/version"
    )
}

#[cfg(test)]
mod tests;
