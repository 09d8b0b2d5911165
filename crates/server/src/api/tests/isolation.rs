//! Who shares prefixes with whom, seen in `cached_tokens`.

use serde_json::{Value, json};

use crate::fixture::{Fixture, conversation};

/// Asks the same long thing; gives how many tokens of it were found.
async fn cached(fixture: &Fixture, user: &str, more: &Value) -> u64 {
    let mut body = json!({
        "messages": [{"role": "user", "content": "abcdefgh".repeat(20)}],
        "max_tokens": 1,
        "user": user,
    });
    let fields = more.as_object().expect("fields").clone();
    body.as_object_mut().expect("fields").extend(fields);
    let reply = fixture.chat(&body).await.json();
    let cached = &reply["usage"]["prompt_tokens_details"]["cached_tokens"];
    cached.as_u64().unwrap_or_else(|| panic!("{reply}"))
}

#[tokio::test]
async fn tenants_share_prefixes_unless_they_are_kept_apart() {
    let shared = Fixture::new();
    assert_eq!(cached(&shared, "ann", &json!({})).await, 0);
    assert!(cached(&shared, "bob", &json!({})).await > 100);
    let apart = Fixture::with(conversation(), |_, server| server.isolate_tenants = true);
    for user in ["ann", "bob", "default"] {
        assert_eq!(cached(&apart, user, &json!({})).await, 0, "{user}");
        assert!(cached(&apart, user, &json!({})).await > 100, "{user}");
    }
}

#[tokio::test]
async fn a_request_can_choose_with_whom_it_shares() {
    let fixture = Fixture::new();
    let none = json!({});
    assert_eq!(cached(&fixture, "ann", &none).await, 0);
    assert_eq!(
        cached(&fixture, "ann", &json!({"cache_prompt": false})).await,
        0
    );
    let salted = json!({"cache_salt": "of two friends"});
    assert_eq!(cached(&fixture, "ann", &salted).await, 0);
    assert!(cached(&fixture, "bob", &salted).await > 100);
    assert_eq!(
        cached(&fixture, "bob", &json!({"cache_salt": "other"})).await,
        0
    );
    // Where OpenAI would look, and for how long: here is one cache.
    let hints = json!({"prompt_cache_key": "anything", "prompt_cache_retention": "24h"});
    assert!(cached(&fixture, "ann", &hints).await > 100);
    let wrong = json!({"messages": [], "prompt_cache_key": 7});
    assert_eq!(fixture.chat(&wrong).await.status, 400);
}
