//! What a watcher sees of requests, and what not.

use std::time::Duration;

use axum::body::BodyDataStream;
use axum::http::Request;
use serde_json::{Value, json};

use super::*;
use crate::fixture::{Fixture, conversation, user};

/// A server whose steps take some time, with one answer behind it.
async fn answered(tenant: &str) -> Fixture {
    let model = conversation().on_forward(|_| std::thread::sleep(Duration::from_millis(1)));
    let server = Fixture::with(model, |_, _| {});
    server
        .chat(&json!({"messages": user("hi"), "temperature": 0, "user": tenant}))
        .await;
    server.idle_after(1).await;
    server
}

fn kinds(moments: &Value) -> Vec<&str> {
    let moments = moments.as_array().expect("a list");
    moments
        .iter()
        .map(|moment| moment["kind"].as_str().expect("a kind"))
        .collect()
}

#[tokio::test]
async fn the_life_of_a_request_can_be_read() {
    let server = answered("ann").await;
    let page = server.get("/timeline").await.json();
    let kinds = kinds(&page["moments"]);
    assert_eq!(kinds[..3], ["arrived", "admitted", "started"]);
    // The prompt, in one step or a few as the machine is fast, gives the first of Hello! and the end token.
    let end = kinds.len() - 1;
    assert!(
        end >= 10 && kinds[3..end].iter().all(|kind| *kind == "step"),
        "{kinds:?}"
    );
    assert_eq!(kinds[end], "ended");
    let moments = page["moments"].as_array().unwrap();
    assert_eq!(moments[0]["prompt_tokens"], 21);
    assert_eq!(
        (&moments[0]["priority"], &moments[0]["cache"]),
        (&json!("normal"), &json!(true))
    );
    assert_eq!(moments[2]["cached_tokens"], 0);
    let parts: Vec<&Value> = moments[3..end - 6]
        .iter()
        .map(|step| &step["prefill"][0])
        .collect();
    let tokens = parts.iter().map(|part| part["tokens"].as_u64().unwrap());
    assert_eq!(tokens.sum::<u64>(), 21);
    assert!(parts.iter().all(|part| part["id"] == 1));
    assert_eq!(parts.last().unwrap()["last"], true);
    for step in &moments[end - 6..end] {
        assert_eq!((&step["decode"], &step["rows"]), (&json!([1]), &json!(1)));
    }
    assert_eq!(moments[end - 6]["resident"], 1);
    assert_eq!(
        (
            &moments[end]["how"],
            &moments[end]["tokens"],
            &moments[end]["id"]
        ),
        (&json!("stop"), &json!(7), &json!(1))
    );
    // The same steps as `/scheduler` shows, in the same words.
    let recent = server.get("/scheduler").await.json()["recent"].clone();
    for (step, moment) in recent.as_array().unwrap().iter().zip(&moments[3..]) {
        for (name, value) in step.as_object().unwrap() {
            assert_eq!(&moment[name], value, "{name}");
        }
    }
    assert_eq!(page["missed"], false);
    assert_eq!(page["counts"]["steps"], end - 3);
}

#[tokio::test]
async fn only_what_is_asked_for_comes() {
    let server = answered("ann").await;
    let page = server.get("/timeline").await.json();
    let moments = page["moments"].as_array().unwrap();
    let last = moments.last().unwrap()["at_us"].as_u64().unwrap();
    let since = |us: u64| format!("/timeline?x=1&since_us={us}");
    let page = server.get(&since(last)).await.json();
    // The step that ended it was over when it was.
    assert_eq!(kinds(&page["moments"]), ["step", "ended"]);
    let page = server.get(&since(last + 1)).await.json();
    assert_eq!(page["moments"], json!([]));
    let error = server.get("/timeline?since_us=-1").await.error(400);
    assert_eq!(error["param"], "since_us");
}

#[tokio::test]
async fn tenants_are_told_apart_and_not_named() {
    let server = answered("ann-the-unmistakable").await;
    server
        .chat(&json!({"messages": user("hi"), "user": "bob"}))
        .await;
    server.idle_after(2).await;
    // The account of one who is new comes a little later.
    while server.engine.status().tenants.len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let as_ann = Request::get("/timeline")
        .header("x-tenant", "ann-the-unmistakable")
        .body(Body::empty());
    let reply = server.call(as_ann.unwrap()).await;
    assert!(!reply.text.contains("ann") && !reply.text.contains("bob"));
    let page = reply.json();
    let arrived: Vec<&Value> = page["moments"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|moment| moment["kind"] == "arrived")
        .map(|moment| &moment["tenant"])
        .collect();
    assert_eq!(arrived[0], &page["own"]);
    assert_ne!(arrived[0], arrived[1]);
    let accounts: Vec<&Value> = page["tenants"].as_array().unwrap().iter().collect();
    assert_eq!(accounts.len(), 2);
    for tenant in arrived {
        assert!(accounts.iter().any(|account| account["name"] == *tenant));
    }
    // No name can be tried out: another engine has other pseudonyms.
    let other = answered("ann-the-unmistakable").await;
    let number = |server: &Fixture| server.engine.pseudonym(7);
    assert_ne!(number(&server), number(&other));
}

async fn event(body: &mut BodyDataStream) -> Option<String> {
    let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await?;
    Some(String::from_utf8(frame.expect("no errors").to_vec()).expect("text"))
}

fn data(frame: &str, name: &str) -> Option<Value> {
    let (_, rest) = frame.split_once(&format!("event: {name}\ndata: "))?;
    let (data, _) = rest.split_once("\n\n")?;
    Some(serde_json::from_str(data).expect("JSON"))
}

#[tokio::test]
async fn a_stream_goes_on_with_what_happens_and_ends_with_the_engine() {
    let server = answered("ann").await;
    let request = Request::get("/timeline/events")
        .body(Body::empty())
        .unwrap();
    let response = server.respond(request).await;
    assert_eq!(response.headers()["content-type"], EVENT_STREAM);
    let mut body = response.into_body().into_data_stream();
    let first = event(&mut body).await.expect("a first event");
    let state = data(&first, "state").expect("the state comes first");
    assert!(state["now_us"].is_u64() && state["stall"]["asked_us"] == 100_000);
    let before = data(&first, "moments").expect("what was before");
    assert_eq!(
        (kinds(&before["moments"]).last(), &before["missed"]),
        (Some(&"ended"), &json!(false))
    );
    server
        .chat(&json!({"messages": user("hi"), "temperature": 0}))
        .await;
    let mut seen = Vec::new();
    while !seen.iter().any(|kind| kind == "ended") {
        let frame = event(&mut body).await.expect("it goes on");
        if let Some(more) = data(&frame, "moments") {
            seen.extend(
                kinds(&more["moments"])
                    .iter()
                    .map(|kind| (*kind).to_owned()),
            );
        }
    }
    assert_eq!(seen[..3], ["arrived", "admitted", "started"]);
    server.engine.shutdown(andante_engine::Shutdown::Now);
    while event(&mut body).await.is_some() {}
}

#[tokio::test]
async fn whoever_has_no_key_sees_nothing() {
    let server = Fixture::with(conversation(), |_, config| {
        config.api_keys = vec![crate::ApiKey::parse("ann:sk-1").unwrap()];
    });
    server.get("/timeline").await.error(401);
    server.get("/timeline/events").await.error(401);
}
