//! Who is who, and what comes first.

use axum::http::HeaderValue;
use serde_json::{Value, json};

use super::*;
use crate::keys::ApiKey;

fn identify(headers: &[(&'static str, &'static str)], body: &Value) -> Result<Account, ApiError> {
    identify_from(
        headers,
        body,
        &[TenantSource::Header, TenantSource::User, TenantSource::Key],
    )
}

fn identify_from(
    headers: &[(&'static str, &'static str)],
    body: &Value,
    sources: &[TenantSource],
) -> Result<Account, ApiError> {
    let pairs = headers.iter().map(|&(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    });
    let caller = Caller::of(&pairs.collect());
    let config = ServerConfig {
        tenant_from: sources.to_vec(),
        api_keys: vec![ApiKey::parse("ann:sk-known").expect("a key")],
        ..ServerConfig::new("m")
    };
    caller.identify(&Field::body(body)?, &config)
}

fn tenant(headers: &[(&'static str, &'static str)], body: &Value) -> String {
    let account = identify(headers, body).expect("well formed");
    account.tenant.name().to_owned()
}

#[test]
fn the_first_source_that_is_there_names_the_tenant() {
    let all = [("x-tenant", " team "), ("authorization", "Bearer abc")];
    assert_eq!(tenant(&all, &json!({"user": "ann"})), "team");
    assert_eq!(tenant(&all[1..], &json!({"user": "ann"})), "ann");
    assert_eq!(tenant(&all[1..], &json!({"user": ""})), "key-ba7816bf");
    assert_eq!(
        tenant(&[("authorization", "bearer abc")], &json!({})),
        "key-ba7816bf"
    );
    assert_eq!(
        tenant(&[("x-api-key", "abc")], &json!({"user": null})),
        "key-ba7816bf"
    );
    assert_eq!(
        tenant(&[("authorization", "Basic abc")], &json!({})),
        "default"
    );
    assert_eq!(
        tenant(&[("authorization", "Bearer ")], &json!({})),
        "default"
    );
    let only = identify_from(&all, &json!({"user": "ann"}), &[TenantSource::Key]);
    assert_eq!(only.expect("well formed").tenant, Tenant::of_key("abc"));
    let none = identify_from(&all, &json!({"user": "ann"}), &[]);
    assert_eq!(none.expect("well formed").tenant, Tenant::default());
}

#[test]
fn priorities_are_words_in_head_body_or_tier() {
    let priority = |headers: &[(&'static str, &'static str)], body: &Value| {
        identify(headers, body).expect("well formed").priority
    };
    assert_eq!(priority(&[], &json!({})), Priority::Normal);
    assert_eq!(
        priority(&[("x-priority", "low")], &json!({"priority": "high"})),
        Priority::Low
    );
    assert_eq!(
        priority(&[], &json!({"priority": "high", "service_tier": "flex"})),
        Priority::High
    );
    assert_eq!(
        priority(&[], &json!({"service_tier": "flex"})),
        Priority::Low
    );
    assert_eq!(
        priority(&[], &json!({"service_tier": "priority"})),
        Priority::High
    );
    assert_eq!(
        priority(&[], &json!({"service_tier": "auto"})),
        Priority::Normal
    );
}

#[test]
fn a_wrong_word_is_refused_by_the_name_of_its_place() {
    let refused = |headers: &[(&'static str, &'static str)], body: &Value| {
        let error = identify(headers, body).expect_err("refused");
        let error = crate::error::Envelope::OpenAi.body(&error, "");
        error["error"]["param"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        refused(&[("x-priority", "urgent")], &json!({})),
        "x-priority"
    );
    assert_eq!(refused(&[], &json!({"priority": "urgent"})), "priority");
    assert_eq!(refused(&[], &json!({"priority": 1})), "priority");
    assert_eq!(refused(&[], &json!({"user": 1})), "user");
}

#[test]
fn a_known_key_has_its_holders_name() {
    let name = |key| tenant(&[("x-api-key", key)], &json!({}));
    assert_eq!(name("sk-known"), "ann");
    assert_eq!(name("sk-other"), Tenant::of_key("sk-other").name());
}
