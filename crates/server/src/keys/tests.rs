//! Keys as they are written, and who gets in with them.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use super::*;
use crate::fixture::{Fixture, Reply, conversation, post, user};

#[test]
fn keys_are_lines() {
    let keys = ApiKey::parse_lines("# ours\n\nann: sk-1\n sk-2 \n \n:sk-3\n").expect("keys");
    let names: Vec<&str> = keys.iter().map(ApiKey::name).collect();
    assert_eq!(
        names,
        [
            "ann",
            Tenant::of_key("sk-2").name(),
            Tenant::of_key("sk-3").name()
        ]
    );
    assert_eq!(find(&keys, "sk-1").map(ApiKey::name), Some("ann"));
    for wrong in ["", "sk-", "sk-11", "ann", "sk-9"] {
        assert_eq!(find(&keys, wrong), None, "{wrong}");
    }
    assert!(!format!("{keys:?}").contains("sk-1"));
}

#[test]
fn limits_stand_behind_the_secret() {
    let limits = |text: &str| {
        let key = ApiKey::parse(text).expect("a key");
        assert_eq!(find(std::slice::from_ref(&key), "sk-1"), Some(&key));
        key.limits()
    };
    assert_eq!(limits("sk-1"), Limits::default());
    let one = Limits {
        requests: NonZeroU32::new(60),
        ..Limits::default()
    };
    assert_eq!(limits("sk-1 rpm=60"), one);
    let all = Limits {
        parallel: NonZeroU32::new(4),
        requests: NonZeroU32::new(60),
        tokens: NonZeroU32::new(u32::MAX),
    };
    assert_eq!(
        limits(" ann : sk-1 tpm=4294967295\tparallel=4  rpm=60 "),
        all
    );
}

#[test]
fn a_line_that_is_wrong_is_told_by_its_number_and_not_its_secret() {
    use KeyError::{NoLimit, NoNumber, NoSecret, Twice};
    for (line, error) in [
        ("ann:", NoSecret),
        (":", NoSecret),
        ("ann: rpm=60", NoSecret),
        ("tpm=60", NoSecret),
        ("ann:sk-1 sk-2", NoLimit),
        ("ann:sk-1 sk=2", NoLimit),
        ("sk-1 rpm", NoLimit),
        ("sk-1 # rpm=1", NoLimit),
        ("sk-1 rpm=", NoNumber { name: "rpm" }),
        ("sk-1 tpm=0", NoNumber { name: "tpm" }),
        ("sk-1 tpm=1e5", NoNumber { name: "tpm" }),
        ("sk-1 tpm=4294967296", NoNumber { name: "tpm" }),
        ("sk-1 parallel=-1", NoNumber { name: "parallel" }),
        ("sk-1 rpm=6 tpm=6 rpm=6", Twice { name: "rpm" }),
    ] {
        assert_eq!(ApiKey::parse(line), Err(error), "{line}");
        let file = format!("# ours\n\nbob:sk-9 rpm=1\n{line}\nann:");
        let refused = ApiKey::parse_lines(&file).expect_err("refused");
        assert_eq!(refused, KeyFileError { line: 4, error });
        let told = refused.to_string();
        assert!(
            told.starts_with("line 4: ") && !told.contains("sk"),
            "{told}"
        );
    }
}

fn guarded() -> Fixture {
    Fixture::with(conversation(), |_, config| {
        config.api_keys = ApiKey::parse_lines("ann:sk-1\nbob:sk-2").expect("keys");
    })
}

fn chat() -> Request<Body> {
    post(
        "/v1/chat/completions",
        json!({"messages": user("hi"), "max_tokens": 1}).to_string(),
    )
}

fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

#[tokio::test]
async fn who_has_no_key_is_refused_in_the_apis_own_form() {
    let server = guarded();
    for request in [
        chat(),
        with(chat(), "authorization", "Bearer sk-3"),
        with(chat(), "authorization", "sk-1"),
        with(chat(), "x-api-key", "ann"),
    ] {
        let reply = server.call(request).await;
        let error = reply.error(401);
        assert_eq!(
            json!([error["type"], error["code"]]),
            json!(["authentication_error", "invalid_api_key"])
        );
        assert_eq!(reply.headers["www-authenticate"], "Bearer");
    }
    let reply = server.post("/v1/messages", &json!({})).await;
    assert_eq!(reply.status, 401);
    assert_eq!(reply.json()["error"]["type"], "authentication_error");
    let reply = server.post("/api/chat", &json!({})).await;
    assert!(reply.json()["error"].is_string());
    for path in [
        "/metrics",
        "/scheduler",
        "/v1/models/fake-1",
        "/v1/responses/resp_1",
        "/nothing",
    ] {
        assert_eq!(server.get(path).await.status, 401, "{path}");
    }
}

#[tokio::test]
async fn a_key_opens_and_names_the_tenant() {
    let server = guarded();
    for request in [
        with(chat(), "authorization", "Bearer sk-1"),
        with(chat(), "x-api-key", "sk-2"),
    ] {
        assert_eq!(server.call(request).await.status, 200);
    }
    server.idle_after(2).await;
    let tenants = loop {
        let tenants = server.engine.status().tenants;
        if tenants.len() == 2 {
            break tenants;
        }
        // Accounts come a little later than answers.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    };
    let mut names: Vec<String> = tenants
        .iter()
        .map(|tenant| tenant.name.to_string())
        .collect();
    names.sort();
    assert_eq!(names, ["ann", "bob"]);
}

#[tokio::test]
async fn some_paths_are_there_for_everybody() {
    let server = guarded();
    for path in [
        "/",
        "/health",
        "/v1/health",
        "/models",
        "/v1/models",
        "/api/tags",
        "/api/version",
    ] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    // A browser asks before it sends the key.
    let preflight = Request::options("/v1/chat/completions")
        .header("origin", "http://localhost:3000")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization");
    let reply: Reply = server.call(preflight.body(Body::empty()).unwrap()).await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.headers["access-control-allow-origin"],
        "http://localhost:3000"
    );
    let refused = server
        .call(with(chat(), "origin", "http://localhost:3000"))
        .await;
    assert_eq!(refused.status, 401);
    assert!(refused.headers.contains_key("access-control-allow-origin"));
}
