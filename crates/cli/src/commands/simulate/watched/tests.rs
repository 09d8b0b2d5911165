//! What a timeline says of requests that come, share steps, and end.

use super::*;

const STEP: &str = r#""kind":"step","step_no":1,"predicted_us":1,"io_us":0,"queued":0"#;

fn timeline(moments: &[String]) -> String {
    format!("{{\"missed\":false,\"moments\":[{}]}}", moments.join(","))
}

fn arrived(id: u64, at_us: u64, tokens: u32, tenant: &str) -> String {
    format!(
        r#"{{"kind":"arrived","id":{id},"at_us":{at_us},"prompt_tokens":{tokens},"tenant":"{tenant}","priority":"high","cache":true}}"#
    )
}

fn step(from_us: u64, took_us: u64, decode: &[u64], prefill: &[(u64, u32, bool)]) -> String {
    let parts: Vec<String> = prefill
        .iter()
        .map(|(id, tokens, last)| {
            format!(r#"{{"id":{id},"start":0,"tokens":{tokens},"last":{last}}}"#)
        })
        .collect();
    format!(
        r#"{{{STEP},"started_us":{from_us},"actual_us":{took_us},"rows":{},"decode":{decode:?},"prefill":[{}]}}"#,
        decode.len(),
        parts.join(",")
    )
}

fn ended(id: u64, cached: u32, tokens: u32) -> String {
    format!(
        r#"{{"kind":"ended","id":{id},"at_us":1,"how":"stop","cached_tokens":{cached},"tokens":{tokens}}}"#
    )
}

#[test]
fn tokens_come_when_their_steps_end() {
    let watched = read(&timeline(&[
        // One that had come before is in the steps alone.
        step(5_000_000, 1_000, &[7], &[]),
        arrived(8, 5_001_000, 100, "aa"),
        r#"{"kind":"admitted","id":8,"at_us":5001000}"#.to_owned(),
        r#"{"kind":"started","id":8,"at_us":5001000,"cached_tokens":30}"#.to_owned(),
        step(5_001_500, 3_000, &[7], &[(8, 50, false)]),
        step(5_005_000, 2_000, &[7], &[(8, 20, true)]),
        arrived(9, 5_006_000, 5, "bb"),
        step(5_007_000, 1_000, &[7, 8], &[(9, 5, true)]),
        step(5_010_000, 4_000, &[8], &[]),
        ended(8, 32, 3),
    ]))
    .unwrap();
    let [first, second] = &watched.run.requests[..] else {
        panic!("{:?}", watched.run.requests);
    };
    assert_eq!((first.arrival_us, second.arrival_us), (1_000, 6_000));
    // From 1,000 to 7,000 and from 6,000 to 8,000.
    assert_eq!((first.ttft_us, second.ttft_us), (Some(6_000), Some(2_000)));
    assert_eq!((first.tokens, second.tokens), (3, 1));
    assert_eq!(watched.run.gaps_us, [1_000, 6_000]);
    assert_eq!(watched.run.longest_gap, (8_000, 14_000));
    assert_eq!((watched.run.steps.len(), watched.run.end_us), (5, 14_000));
    let mixed = watched.run.steps[1];
    assert_eq!((mixed.rows, mixed.prefill), (1, 50));
    assert_eq!((watched.prompt_tokens, watched.cached_tokens), (105, 32));
    let answers: Vec<u32> = watched.requests.iter().map(|one| one.answer).collect();
    assert_eq!(answers, [3, 1]);
    assert_ne!(watched.requests[0].tenant, watched.requests[1].tenant);
    assert_eq!(watched.requests[0].priority, Priority::High);
}

#[test]
fn a_client_that_does_not_read_makes_no_gap() {
    let at = |kind, us| format!(r#"{{"kind":"{kind}","id":1,"at_us":{us}}}"#);
    let watched = read(&timeline(&[
        arrived(1, 0, 10, "aa"),
        step(0, 10, &[], &[(1, 10, true)]),
        at("parked", 10),
        at("unparked", 900),
        step(900, 20, &[1], &[]),
    ]))
    .unwrap();
    assert_eq!(watched.run.gaps_us, [20]);
}

#[test]
fn what_got_no_answer_is_no_load() {
    let watched = read(&timeline(&[
        arrived(1, 0, 10, "aa"),
        arrived(2, 0, 10, "aa"),
        step(10, 10, &[], &[(1, 10, true)]),
        // An embedding.
        ended(1, 0, 0),
    ]))
    .unwrap();
    assert_eq!((watched.run.requests.len(), watched.requests.len()), (2, 0));
    assert_eq!(watched.run.requests[1].ttft_us, None);
}

#[test]
fn what_no_engine_says_is_refused() {
    let wrong = |moments: &[String]| read(&timeline(moments)).unwrap_err().to_string();
    let one = arrived(1, 5, 10, "aa");
    for (moments, why) in [
        (vec![one.clone(), one.clone()], "arrives twice"),
        (
            vec![arrived(3, 0, 1, "aa"), one.clone(), arrived(2, 4, 10, "aa")],
            "sequence 2 arrives before",
        ),
        (vec![arrived(1, 5, 0, "aa")], "has 0 tokens"),
        (vec![arrived(1, 5, 1 << 24, "aa")], "has 16777216 tokens"),
        (vec![arrived(1, u64::MAX, 1, "aa")], "is no time"),
        (vec![step(0, u64::MAX, &[], &[])], "is no time"),
        (vec![r#"{"kind":"new"}"#.to_owned()], "GET /timeline"),
    ] {
        let error = wrong(&moments);
        assert!(error.contains(why), "{error}");
    }
    assert!(read(r#"{"moments": ["#).is_err());
}

#[test]
fn traces_are_not_taken_for_timelines() {
    assert!(is_one(" {\"cost\": {}, \"moments\": []}"));
    assert!(!is_one(
        "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}"
    ));
    assert!(!is_one("TIMESTAMP,ContextTokens,GeneratedTokens"));
}
