//! API keys: who may ask, and by what name the log and the scheduler know them.

use std::fmt;

use andante_engine::Tenant;

/// A key and its holder's name.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    name: String,
    secret: String,
}

impl ApiKey {
    /// A key by its own name, which tells it apart and gives nothing of it away.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self {
            name: Tenant::of_key(secret).name().to_owned(),
            secret: secret.to_owned(),
        }
    }

    /// A key as it is written in a file or an argument: `SECRET` or `NAME:SECRET`. `None` where there is no secret.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, secret) = match text.trim().split_once(':') {
            Some((name, secret)) => (Some(name.trim()), secret.trim()),
            None => (None, text.trim()),
        };
        if secret.is_empty() {
            return None;
        }
        let mut key = Self::new(secret);
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            name.clone_into(&mut key.name);
        }
        Some(key)
    }

    /// The keys of a file: one a line; empty lines and those that begin with `#` mean nothing.
    #[must_use]
    pub fn parse_lines(text: &str) -> Vec<Self> {
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'));
        lines.filter_map(Self::parse).collect()
    }

    /// The holder's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
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
            .finish_non_exhaustive()
    }
}

/// The key among `keys` that was given.
pub(crate) fn find<'a>(keys: &'a [ApiKey], given: &str) -> Option<&'a ApiKey> {
    keys.iter().find(|key| key.is(given))
}

/// Whether a path is there for everybody: whether the server works, and what it has to offer.
pub(crate) fn is_public(path: &str) -> bool {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    matches!(
        path,
        "/" | "/health"
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
