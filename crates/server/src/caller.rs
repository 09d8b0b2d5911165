//! Whom a request is served for, and how urgent it is: from the head, the body or the API key, as the server is told.
//!
//! Nothing is checked here: this tells users of one machine apart, who have no reason to lie to each other. Where they have,
//! the server has keys, and only these should name tenants.

use andante_engine::{Priority, Tenant};
use axum::http::{HeaderMap, HeaderName, header};

use crate::config::{ServerConfig, TenantSource};
use crate::error::ApiError;
use crate::json::Field;
use crate::keys;

const TENANT: HeaderName = HeaderName::from_static("x-tenant");
const PRIORITY: HeaderName = HeaderName::from_static("x-priority");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// For whom a request is served, and how urgent it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) tenant: Tenant,
    pub(crate) priority: Priority,
}

/// What a request's head says of its sender.
pub(crate) struct Caller {
    tenant: Option<String>,
    key: Option<String>,
    priority: Option<String>,
}

impl Caller {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name: HeaderName| {
            let value = headers.get(name)?;
            let text = String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
            Some(text).filter(|text| !text.is_empty())
        };
        let bearer = text(header::AUTHORIZATION).and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            let key = key.trim().to_owned();
            (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then_some(key)
        });
        Self {
            tenant: text(TENANT),
            key: bearer.or_else(|| text(API_KEY)),
            priority: text(PRIORITY),
        }
    }

    /// The API key, if one was sent.
    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// For whom the request is and how urgent, by its head and body.
    pub(crate) fn identify(
        &self,
        body: &Field<'_>,
        config: &ServerConfig,
    ) -> Result<Account, ApiError> {
        let user = body.get("user").string()?.filter(|user| !user.is_empty());
        Ok(Account {
            tenant: self.tenant(user, config),
            priority: self.priority(body)?,
        })
    }

    /// The tenant that the first source of `config` names which the request has. What belongs to a request without a body, as a stored
    /// answer does, is found without a `user`.
    pub(crate) fn tenant(&self, user: Option<&str>, config: &ServerConfig) -> Tenant {
        let named = |source: &TenantSource| match source {
            TenantSource::Header => self.tenant.as_deref().map(Tenant::named),
            TenantSource::User => user.map(Tenant::named),
            TenantSource::Key => {
                let key = self.key.as_deref()?;
                let holder = keys::find(&config.api_keys, key);
                Some(holder.map_or_else(
                    || Tenant::of_key(key),
                    |holder| Tenant::named(holder.name()),
                ))
            }
        };
        config
            .tenant_from
            .iter()
            .find_map(named)
            .unwrap_or_default()
    }

    fn priority(&self, body: &Field<'_>) -> Result<Priority, ApiError> {
        if let Some(word) = &self.priority {
            return parse(word).ok_or_else(|| ApiError::Field {
                path: PRIORITY.as_str().to_owned(),
                why: unknown(word),
            });
        }
        let field = body.get("priority");
        if let Some(word) = field.string()? {
            return parse(word).ok_or_else(|| field.error(unknown(word)));
        }
        // OpenAI's tiers: a dearer one that is served first, and a cheaper one that waits.
        Ok(match body.get("service_tier").string()? {
            Some("priority") => Priority::High,
            Some("flex") => Priority::Low,
            _ => Priority::Normal,
        })
    }
}

fn parse(word: &str) -> Option<Priority> {
    match word {
        "low" => Some(Priority::Low),
        "normal" => Some(Priority::Normal),
        "high" => Some(Priority::High),
        _ => None,
    }
}

fn unknown(word: &str) -> String {
    let word: String = word.chars().take(32).collect();
    format!("`{word}` is no priority; low, normal and high are")
}

#[cfg(test)]
mod tests;
