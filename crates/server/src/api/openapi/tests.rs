//! The document is that of the router, and whole. That answers are as it says is tried with schemathesis (`cargo xtask clients`).

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use regex::Regex;
use serde_json::Value;

use crate::api;
use crate::fixture::{Fixture, Reply};

async fn document(server: &Fixture) -> Value {
    let reply = server.get("/openapi.json").await;
    assert_eq!(reply.status, 200);
    reply.json()
}

#[tokio::test]
async fn every_route_is_described() {
    let server = Fixture::new();
    let document = document(&server).await;
    let described: BTreeSet<&str> = document["paths"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    // axum tells its routes to nobody but in its debugging output.
    let router = format!("{:?}", api::documented().0);
    let quoted = Regex::new("\"(/[^\"]*)\"").unwrap();
    let routes: BTreeSet<String> = quoted
        .captures_iter(&router)
        .map(|found| found[1].replace("{*", "{"))
        .filter(|path| !path.contains("__private"))
        .collect();
    assert!(routes.len() > 40, "{routes:?}");
    for route in &routes {
        let versioned = format!("/v1{route}");
        assert!(
            described.contains(route.as_str()) || described.contains(versioned.as_str()),
            "{route}"
        );
    }
    for path in described {
        assert!(routes.contains(path), "{path}");
    }
}

#[tokio::test]
async fn what_is_described_is_there_under_both_addresses() {
    let server = Fixture::new();
    let document = document(&server).await;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let path = path.replace("{id}", "x");
            let plain = path.strip_prefix("/v1").unwrap_or(&path);
            for path in [&path, plain] {
                let request = Request::builder().method(method.to_uppercase().as_str());
                let request = request.uri(path).body(Body::from("{}")).unwrap();
                let response = server.respond(request).await;
                let told = operation["responses"].get(response.status().as_str());
                if path == "/timeline/events" {
                    // It goes on for as long as the server does.
                    assert!(told.is_some(), "{}", response.status());
                    continue;
                }
                let reply = Reply::of(response).await;
                assert!(told.is_some(), "{method} {path}: {}", reply.text);
                assert!(
                    !reply.text.contains("there is no"),
                    "{method} {path}: {}",
                    reply.text
                );
            }
        }
    }
}

#[tokio::test]
async fn what_it_refers_to_is_in_it() {
    fn check(value: &Value, document: &Value) {
        if let Some(reference) = value["$ref"].as_str() {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        match value {
            Value::Object(entries) => entries.values().for_each(|value| check(value, document)),
            Value::Array(items) => items.iter().for_each(|value| check(value, document)),
            _ => {}
        }
    }
    let server = Fixture::new();
    let document = document(&server).await;
    check(&document, &document);
    assert!(document["components"]["schemas"].as_object().unwrap().len() > 30);
}
