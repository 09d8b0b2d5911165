//! Text completions: shapes, the forms of a prompt, the old log-probabilities.

use serde_json::{Value, json};

use crate::fixture::{Fixture, Reply};

const PATH: &str = "/v1/completions";

fn texts(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let body = reply.json();
    let choices = body["choices"].as_array().unwrap();
    assert!(
        choices
            .iter()
            .enumerate()
            .all(|(i, choice)| choice["index"] == i)
    );
    choices
        .iter()
        .map(|choice| choice["text"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_stream_in_full() {
    let server = Fixture::new();
    let body = json!({"model": "any", "prompt": "one two", "stream": true, "temperature": 0, "logprobs": 1, "max_tokens": 3});
    insta::assert_snapshot!(server.post(PATH, &body).await.redacted());
}

#[tokio::test]
async fn a_whole_answer_in_full() {
    let server = Fixture::new();
    let body = json!({"prompt": "one two", "temperature": 0, "logprobs": 0, "max_tokens": 3});
    insta::assert_snapshot!(server.post(PATH, &body).await.redacted());
}

#[tokio::test]
async fn every_form_of_prompt_is_a_prompt() {
    let server = Fixture::new();
    let ids: Vec<u8> = b"one two".to_vec();
    for (prompt, count) in [
        (json!("one two"), 1),
        (json!(["one two"]), 1),
        (json!(["one two", "one two"]), 2),
        (json!(ids), 1),
        (json!([ids, ids]), 2),
        (json!(["one two", ids]), 2),
    ] {
        let reply = server
            .post(PATH, &json!({"prompt": prompt, "temperature": 0}))
            .await;
        assert_eq!(texts(&reply), vec![" three"; count]);
        let usage = &reply.json()["usage"];
        assert_eq!(usage["prompt_tokens"], 7 * count, "each prompt counts once");
        assert_eq!(
            usage["completion_tokens"],
            7 * count,
            "six letters and the end"
        );
        let [prompt, completion, total] = ["prompt", "completion", "total"]
            .map(|n| usage[format!("{n}_tokens")].as_u64().unwrap());
        assert_eq!(prompt + completion, total);
    }
}

#[tokio::test]
async fn choices_of_a_prompt_share_its_tokens_and_differ_by_seed() {
    let server = Fixture::new();
    let ask = async |seed: u64, n: u64| {
        let body = json!({"prompt": "abc", "temperature": 20, "min_p": 0, "seed": seed, "n": n, "max_tokens": 8});
        server.post(PATH, &body).await
    };
    let three = ask(5, 3).await;
    assert_eq!(three.json()["usage"]["prompt_tokens"], 3);
    assert_eq!(three.json()["usage"]["completion_tokens"], 24);
    let three = texts(&three);
    assert_eq!(texts(&ask(5, 1).await)[0], three[0]);
    assert_eq!(texts(&ask(6, 1).await)[0], three[1]);
    assert_eq!(texts(&ask(7, 1).await)[0], three[2]);
    assert_ne!(three[0], three[1]);
}

#[tokio::test]
async fn an_echo_comes_first_streamed_or_not() {
    let server = Fixture::new();
    let mut body =
        json!({"prompt": ["one two", "héé"], "echo": true, "temperature": 0, "max_tokens": 2});
    let whole = texts(&server.post(PATH, &body).await);
    assert_eq!(whole[0], "one two t");
    assert!(whole[1].starts_with("héé"));
    body["prompt"] = json!([b"one two".to_vec(), "héé".bytes().collect::<Vec<u8>>()]);
    body["stream"] = json!(true);
    let mut streamed = vec![String::new(); 2];
    for event in server.post(PATH, &body).await.events() {
        if let Some(choice) = event["choices"].get(0) {
            let index = choice["index"].as_u64().unwrap();
            streamed[usize::try_from(index).unwrap()] += choice["text"].as_str().unwrap();
        }
    }
    assert_eq!(streamed, whole);
}

#[tokio::test]
async fn biases_forbid_and_force() {
    let server = Fixture::new();
    let forced =
        json!({"prompt": "x", "temperature": 0, "max_tokens": 3, "logit_bias": {"113": 100}});
    assert_eq!(texts(&server.post(PATH, &forced).await), ["qqq"]);
    let plain = json!({"prompt": "x", "temperature": 0, "max_tokens": 1});
    let letter = texts(&server.post(PATH, &plain).await)[0].clone();
    let mut forbidden = plain;
    forbidden["logit_bias"] = json!([[letter.as_bytes()[0], false]]);
    assert_ne!(texts(&server.post(PATH, &forbidden).await)[0], letter);
}

#[tokio::test]
async fn what_is_wrong_or_cannot_be_had_is_refused_by_name() {
    let server = Fixture::new();
    for (field, value, param) in [
        ("prompt", Value::Null, json!("prompt")),
        ("prompt", json!({}), json!("prompt")),
        ("prompt", json!([]), json!("prompt")),
        ("prompt", json!([1, "x"]), json!("prompt[1]")),
        ("prompt", json!([1, -1]), json!("prompt[1]")),
        ("prompt", json!([[1], 2]), json!("prompt[1]")),
        ("prompt", json!([[1], [1.5]]), json!("prompt[1][0]")),
        ("prompt", json!([99999]), Value::Null),
        ("prompt", json!(""), Value::Null),
        ("prompt", json!(vec!["x"; 200]), json!("prompt")),
        ("logprobs", json!(true), json!("logprobs")),
        ("logprobs", json!(21), json!("logprobs")),
        ("suffix", json!("tail"), json!("suffix")),
        ("best_of", json!(3), json!("best_of")),
        ("echo", json!(1), json!("echo")),
        (
            "response_format",
            json!({"type": "xml"}),
            json!("response_format.type"),
        ),
    ] {
        let mut body = json!({"prompt": "x", "max_tokens": 1});
        body[field] = value.clone();
        let error = server.post(PATH, &body).await.error(400);
        assert_eq!(error["param"], param, "{field}: {value} gives {error}");
    }
    let many = json!({"prompt": ["a", "b"], "n": 64});
    assert_eq!(server.post(PATH, &many).await.error(400)["param"], "prompt");
    let echo = json!({"prompt": "a", "echo": true, "logprobs": 1});
    assert_eq!(server.post(PATH, &echo).await.error(400)["param"], "echo");
}
