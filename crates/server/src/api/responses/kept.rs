//! Responses that were kept: asked for again, forgotten, and the items that they were made from.

use std::sync::Arc;

use andante_engine::Tenant;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use serde_json::Value;

use super::object::{Deleted, ItemPage, ResponseObject};
use super::store::Stored;
use crate::Server;
use crate::api::Id;
use crate::api::openapi::NoSuch;
use crate::caller::Caller;
use crate::error::ApiError;

/// Most items of one page.
const MAX_PAGE: usize = 100;
/// Items of one page, where the request does not say.
const PAGE: usize = 20;

/// Whose responses a request may see: those of its tenant, as far as its head names one.
pub(super) fn owner(server: &Server, headers: &HeaderMap) -> Tenant {
    Caller::of(headers).tenant(None, server.config())
}

fn find(server: &Server, id: &str, headers: &HeaderMap) -> Result<Arc<Stored>, ApiError> {
    let stored = server.responses().get(id, &owner(server, headers));
    stored.ok_or_else(|| missing(id))
}

fn missing(id: &str) -> ApiError {
    ApiError::NoObjectStored {
        what: "Response",
        id: id.chars().take(100).collect(),
    }
}

/// A response as it was answered.
#[utoipa::path(
    get,
    path = "/responses/{id}",
    tag = "OpenAI",
    params(("id" = String, Path)),
    responses((status = 200, body = ResponseObject), NoSuch)
)]
pub(in crate::api) async fn retrieve(
    State(server): State<Server>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(find(&server, &id, &headers)?.response.clone()))
}

/// Forgets a response.
#[utoipa::path(
    delete,
    path = "/responses/{id}",
    tag = "OpenAI",
    params(("id" = String, Path)),
    responses((status = 200, body = Deleted), NoSuch)
)]
pub(in crate::api) async fn remove(
    State(server): State<Server>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Json<Deleted>, ApiError> {
    let removed = server.responses().remove(&id, &owner(&server, &headers));
    removed.ok_or_else(|| missing(&id))?;
    Ok(Json(Deleted {
        id,
        object: "response",
        deleted: true,
    }))
}

/// Only answers in the background can be cancelled by their id, and there are none: a client that goes cancels its answer.
#[utoipa::path(
    post,
    path = "/responses/{id}/cancel",
    tag = "OpenAI",
    params(("id" = String, Path)),
    responses(NoSuch)
)]
pub(in crate::api) async fn cancel(
    State(server): State<Server>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Json<Value>, ApiError> {
    find(&server, &id, &headers)?;
    Err(ApiError::Field {
        path: "response_id".to_owned(),
        why: "only an answer in the background can be cancelled".to_owned(),
    })
}

/// Which part of a list, from the address: `limit`, `order` and `after`.
#[derive(Default)]
struct Page<'a> {
    limit: Option<usize>,
    ascending: bool,
    after: Option<&'a str>,
}

impl<'a> Page<'a> {
    fn of(query: &'a str) -> Result<Self, ApiError> {
        let mut page = Self::default();
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let wrong = |why: &str| ApiError::Field {
                path: key.to_owned(),
                why: why.to_owned(),
            };
            match key {
                "limit" => {
                    let limit = value
                        .parse()
                        .ok()
                        .filter(|limit| (1..=MAX_PAGE).contains(limit));
                    page.limit = Some(limit.ok_or_else(|| wrong("must be from 1 to 100"))?);
                }
                "order" => match value {
                    "asc" => page.ascending = true,
                    "desc" => page.ascending = false,
                    _ => return Err(wrong("must be asc or desc")),
                },
                "after" => page.after = Some(value),
                _ => {}
            }
        }
        Ok(page)
    }
}

/// The items that a response was made from, the last first unless asked otherwise.
#[utoipa::path(
    get,
    path = "/responses/{id}/input_items",
    tag = "OpenAI",
    params(
        ("id" = String, Path),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100),
        ("order" = Option<String>, Query, pattern = "^(asc|desc)$"),
        ("after" = Option<String>, Query)
    ),
    responses((status = 200, body = ItemPage), NoSuch)
)]
pub(in crate::api) async fn input_items(
    State(server): State<Server>,
    Id(id): Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<ItemPage>, ApiError> {
    let page = Page::of(uri.query().unwrap_or_default())?;
    let stored = find(&server, &id, &headers)?;
    let mut items: Vec<&Value> = stored.input.iter().map(Arc::as_ref).collect();
    if !page.ascending {
        items.reverse();
    }
    if let Some(after) = page.after {
        let place = items.iter().position(|item| item["id"] == after);
        items.drain(..place.map_or(0, |place| place + 1));
    }
    let limit = page.limit.unwrap_or(PAGE);
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id = |item: Option<&&Value>| item.and_then(|item| item["id"].as_str().map(str::to_owned));
    Ok(Json(ItemPage {
        object: "list",
        first_id: id(items.first()),
        last_id: id(items.last()),
        data: items.into_iter().cloned().collect(),
        has_more,
    }))
}
