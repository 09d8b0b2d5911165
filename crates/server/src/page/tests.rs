//! How the page is sent, and that all of it is there.

use std::collections::BTreeSet;
use std::path::Path;

use axum::body::Body;
use axum::http::Request;

use super::*;
use crate::fixture::{Fixture, Reply, conversation};

async fn browse(server: &Fixture, path: &str, headers: &[(&str, &str)]) -> Reply {
    let request = Request::get(path).header("accept", "text/html,application/xhtml+xml;q=0.9,*/*");
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    server.call(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn browsers_get_the_page_and_programs_a_line() {
    let server = Fixture::new();
    let page = browse(&server, "/", &[]).await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert!(page.text.starts_with("<!doctype html>"));
    let line = server.get("/").await;
    assert_eq!(line.text, "Andante is running\n");
    assert_eq!(line.headers["vary"], page.headers["vary"]);
}

#[tokio::test]
async fn the_page_is_there_without_a_key_and_nothing_else_of_it() {
    let server = Fixture::with(conversation(), |_, config| {
        config.api_keys = vec![crate::ApiKey::parse("ann:sk-1").unwrap()];
    });
    assert_eq!(browse(&server, "/", &[]).await.status, 200);
    for file in FILES {
        let path = format!("{FOLDER}{}", file.name);
        assert_eq!(browse(&server, &path, &[]).await.status, 200, "{path}");
    }
    browse(&server, "/page", &[]).await.error(401);
    browse(&server, "/timeline", &[]).await.error(401);
    browse(&server, "/page/../timeline", &[]).await.error(404);
}

#[tokio::test]
async fn nothing_may_come_from_elsewhere() {
    let server = Fixture::new();
    let page = browse(&server, "/", &[]).await;
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"));
    assert!(!policy.contains("unsafe"));
    for name in ["x-content-type-options", "referrer-policy", "etag"] {
        assert!(page.headers.contains_key(name), "{name}");
    }
    // The policy forbids it anyway; what is not there need not be forbidden.
    for file in FILES
        .iter()
        .filter(|file| !file.name.starts_with("vendor/"))
    {
        let text = std::str::from_utf8(file.content).expect("text");
        let outside = text.replace("http://www.w3.org/", "");
        assert!(
            !outside.contains("http://") && !outside.contains("https://"),
            "{}",
            file.name
        );
    }
}

#[tokio::test]
async fn what_is_known_is_not_sent_again() {
    let server = Fixture::new();
    let path = "/page/style.css";
    let first = browse(&server, path, &[]).await;
    let tag = first.headers["etag"].to_str().unwrap();
    for known in [tag.to_owned(), format!("\"x\", W/{tag}")] {
        let again = browse(&server, path, &[("if-none-match", &known)]).await;
        assert_eq!((again.status.as_u16(), again.text.as_str()), (304, ""));
        assert_eq!(again.headers["etag"], tag);
    }
    let other = browse(&server, path, &[("if-none-match", "\"0000000000000000\"")]).await;
    assert_eq!(other.text, first.text);
    browse(&server, "/page/nothing.js", &[]).await.error(404);
}

/// Names of files below `folder`.
fn walk(folder: &Path, prefix: &str, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().expect("a kind").is_dir() {
            walk(&entry.path(), &format!("{name}/"), names);
        } else {
            names.insert(name);
        }
    }
}

#[test]
fn every_file_of_the_folder_is_in_the_program() {
    let mut there = BTreeSet::new();
    walk(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("web"),
        "",
        &mut there,
    );
    let listed: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
    assert_eq!(there, listed);
}
