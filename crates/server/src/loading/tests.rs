//! Answers before there is a model.

use axum::body::{Body, to_bytes};
use serde_json::Value;
use tower::ServiceExt as _;

use super::*;

async fn ask(loading: &Loading, request: Request<Body>) -> (u16, Option<String>, Value) {
    let response = loading.router().oneshot(request).await.unwrap();
    let retry = response.headers().get("retry-after");
    let retry = retry.map(|after| after.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, retry, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn a_server_that_loads_lives_and_says_how_far_it_is() {
    let loading = Loading::default();
    loading.set(421, 1000);
    for path in ["/health", "/v1/health", "/health/ready"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let (status, _, body) = ask(&loading, request).await;
        assert_eq!(status, 503, "{path}");
        assert_eq!(body["status"], "loading");
        assert_eq!(body["progress"], 0.421);
        assert_eq!(
            (&body["live"], &body["ready"]),
            (&true.into(), &false.into())
        );
    }
    let request = Request::get("/health/live").body(Body::empty()).unwrap();
    let (status, _, body) = ask(&loading, request).await;
    assert_eq!((status, &body["live"]), (200, &true.into()));
}

#[tokio::test]
async fn a_request_is_told_to_come_back_in_the_form_of_its_api() {
    let loading = Loading::default();
    loading.set(1, 2);
    let body = || Body::from("{}");
    let chat = Request::post("/v1/chat/completions").body(body()).unwrap();
    let (status, retry, body_) = ask(&loading, chat).await;
    assert_eq!((status, retry.as_deref()), (503, Some("5")));
    let message = body_["error"]["message"].as_str().unwrap();
    assert_eq!(message, "the model is being loaded: 50 %");
    let messages = Request::post("/v1/messages").body(body()).unwrap();
    let (status, retry, body_) = ask(&loading, messages).await;
    assert_eq!((status, retry.as_deref()), (529, Some("5")));
    assert_eq!(body_["type"], "error");
}

#[test]
fn progress_stays_within_bounds() {
    let loading = Loading::default();
    loading.set(3, 0);
    assert_eq!(loading.permille(), 1000);
    loading.set(u64::MAX, u64::MAX);
    assert_eq!(loading.permille(), 1000);
    loading.set(0, 5);
    assert_eq!(loading.permille(), 0);
}
