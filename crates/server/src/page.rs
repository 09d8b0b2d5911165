//! The page at `/`: files of `web/`, inside the program. Served without a key, since there is nothing in them that is anybody's; what the
//! page then asks for is asked with the key that its user gives it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};

use crate::error::ApiError;

/// Where the files are, but for the first.
pub(crate) const FOLDER: &str = "/page/";

/// Nothing comes from elsewhere or goes there, no text becomes a script, and no other site shows the page as a part of itself.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types dompurify";

/// What every file is sent with.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    // Asked about every time, and sent only when another program serves another one.
    (header::CACHE_CONTROL, "no-cache"),
];

struct File {
    name: &'static str,
    content: &'static [u8],
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(File { name: $name, content: include_bytes!(concat!("../web/", $name)) }),*]
    };
}

/// All files, those that others wrote last.
const FILES: &[File] = files![
    "index.html",
    "style.css",
    "icon.svg",
    "main.js",
    "api.js",
    "conversation.js",
    "dom.js",
    "format.js",
    "kv.js",
    "markdown.js",
    "model.js",
    "store.js",
    "chat/answer.js",
    "chat/chat.js",
    "chat/composer.js",
    "chat/list.js",
    "chat/message.js",
    "chat/settings.js",
    "schedule/causes.js",
    "schedule/draw.js",
    "schedule/export.js",
    "schedule/panels.js",
    "schedule/pen.js",
    "schedule/schedule.js",
    "schedule/timeline.js",
    "vendor/dompurify.js",
    "vendor/dompurify.LICENSE",
    "vendor/highlight.js",
    "vendor/highlight.LICENSE",
    "vendor/manifest.json",
    "vendor/markdown-it.js",
    "vendor/markdown-it.LICENSE",
];

/// The page itself.
pub(crate) fn index(headers: &HeaderMap) -> Response {
    send(&FILES[0], headers)
}

/// Whether whoever asks is a browser that shows pages; programs ask at `/` whether anybody is there.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("text/html"))
}

/// A file of [`FOLDER`].
pub(crate) async fn file(headers: HeaderMap, uri: Uri) -> Result<Response, ApiError> {
    let name = uri.path().strip_prefix(FOLDER).unwrap_or_default();
    let found = FILES.iter().find(|file| file.name == name);
    let file = found.ok_or_else(|| ApiError::NoRoute {
        path: uri.path().to_owned(),
    })?;
    Ok(send(file, &headers))
}

fn send(file: &File, headers: &HeaderMap) -> Response {
    let tag = tag(file.content);
    let has = |value: &HeaderValue| {
        value
            .as_bytes()
            .windows(tag.len())
            .any(|part| part == tag.as_bytes())
    };
    let known = headers.get_all(header::IF_NONE_MATCH).iter().any(has);
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        (
            [(header::CONTENT_TYPE, media_type(file.name))],
            file.content,
        )
            .into_response()
    };
    let sent = response.headers_mut();
    for (name, value) in HEADERS {
        sent.insert(name, HeaderValue::from_static(value));
    }
    sent.insert(
        header::ETAG,
        HeaderValue::try_from(tag).expect("plain ASCII"),
    );
    response
}

/// The same for the same content.
fn tag(content: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, kind)| kind) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests;
