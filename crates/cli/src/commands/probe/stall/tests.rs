//! A scripted server: rounds that show something, and every way in which one shows nothing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;

use super::super::script::{self, Reply, Request};
use super::*;
use crate::args::{Cli, Command, ProbeArgs};
use clap::Parser;

/// Milliseconds until the long prompt's first token: the newcomer comes after 500.
const PREFILL_MS: u64 = 900;

const LONG: usize = 3000;
const SHORT: usize = 60;
const VICTIM: usize = 32;

/// Set while the long prompt is computed.
static STALLED: AtomicBool = AtomicBool::new(false);

fn options(more: &str) -> ProbeArgs {
    let line = format!("andante probe http://unused --long {LONG} --work 20 --timeout-s 60 {more}");
    match Cli::parse_from(line.split_whitespace()).command {
        Command::Probe(args) => args,
        _ => panic!("not probe"),
    }
}

/// One round against a server that answers as `script` says, except for the requests it leaves alone.
fn measure(
    more: &str,
    script: impl Fn(&Request, &mut Reply) -> bool + Send + Sync + 'static,
) -> Result<Measures, Void> {
    let flowed = AtomicUsize::new(0);
    let base = script::serve(move |request, reply| {
        if script(request, reply) {
            return;
        }
        match request.prompt_tokens() {
            VICTIM => flow(request, reply, || {
                flowed.fetch_add(1, Ordering::SeqCst);
                1
            }),
            LONG => {
                let before = flowed.load(Ordering::SeqCst);
                let mut idle_ms = 0;
                sleep(Duration::from_millis(PREFILL_MS));
                // On a busy machine, until the answers have got something meanwhile, unless they have ended.
                while flowed.load(Ordering::SeqCst) < before + 100 && idle_ms < PREFILL_MS {
                    sleep(Duration::from_millis(10));
                    idle_ms += 10;
                }
                reply.answer(request);
            }
            _ => reply.answer(request),
        }
    });
    let mut args = options(more);
    args.url = base;
    let mut target = Target::open(&args).unwrap();
    let round = round(&mut target, &args.stall, Duration::from_secs(60)).unwrap();
    round.measures(&args.stall)
}

/// A token after every `pause` milliseconds, until the client leaves or has them all.
fn flow(request: &Request, reply: &mut Reply, pause: impl Fn() -> u64) {
    reply.open();
    for _ in 0..request.max_tokens() {
        sleep(Duration::from_millis(pause()));
        if !reply.token() {
            return;
        }
    }
    reply.finish(VICTIM, request.max_tokens());
}

#[test]
fn answers_that_flow_give_all_measures() {
    let measured = measure("--alone", |_, _| false).unwrap();
    assert!(measured.long_ttft_s >= PREFILL_MS as f64 / 1000.0);
    assert!(measured.newcomer_ttft_ms < measured.long_ttft_s * 1000.0);
    assert!(measured.newcomer_first_byte_ms > 0.0);
    assert!(measured.newcomer_first_byte_ms <= measured.newcomer_ttft_ms);
    assert!(
        measured.tokens_by_victim.iter().sum::<usize>() > 50,
        "{measured:?}"
    );
    assert_eq!(measured.longest_gap_by_victim_ms.len(), 2);
    assert!(measured.alone_ttft_s.unwrap() >= PREFILL_MS as f64 / 1000.0);
    // Both prompts and what the answers got meanwhile, in the time until the long prompt's first token.
    let tokens = measured.contended_tokens_per_s * measured.long_ttft_s;
    let generated: usize = measured.tokens_by_victim.iter().sum();
    let known = (LONG + SHORT + generated) as f64;
    // The newcomer's four tokens and the long prompt's first one, or more of those that came in the same read.
    assert!(
        (known + 5.0..=known + 8.0).contains(&tokens.round()),
        "{tokens} of {known}"
    );
}

#[test]
fn answers_that_stand_still_show_the_whole_stall() {
    let measured = measure("", |request, reply| {
        let stalled = &STALLED;
        match request.prompt_tokens() {
            LONG => {
                stalled.store(true, Ordering::SeqCst);
                sleep(Duration::from_millis(PREFILL_MS));
                reply.open();
                reply.token();
                stalled.store(false, Ordering::SeqCst);
                reply.finish(LONG, 1);
                true
            }
            VICTIM => {
                flow(request, reply, || {
                    while stalled.load(Ordering::SeqCst) {
                        sleep(Duration::from_millis(1));
                    }
                    1
                });
                true
            }
            _ => false,
        }
    })
    .unwrap();
    // A token may still be on its way when the stall begins.
    let least = PREFILL_MS as f64 / 2.0;
    assert!(
        measured
            .longest_gap_by_victim_ms
            .iter()
            .all(|gap| *gap > least),
        "{measured:?}"
    );
    assert!(
        measured.stall_ratio > 0.0 && measured.decode_retention < 1.0,
        "{measured:?}"
    );
}

#[test]
fn f28_answers_that_end_too_early_make_it_void() {
    let void = measure("--victim-tokens 60", |_, _| false).unwrap_err();
    assert_eq!(void, Void::Ended(Role::Victim(0)));
}

#[test]
fn f28_a_newcomer_after_the_long_prompt_makes_it_void() {
    let void = measure("", |request, reply| {
        let long = request.prompt_tokens() == LONG;
        if long {
            reply.answer(request);
        }
        long
    });
    assert_eq!(void.unwrap_err(), Void::NewcomerLate);
}

#[test]
fn a_refused_request_makes_it_void() {
    let void = measure("", |request, reply| {
        let short = request.prompt_tokens() == SHORT;
        if short {
            reply.whole(
                "429 Too Many Requests",
                "{\"error\":{\"message\":\"full\"}}",
            );
        }
        short
    });
    assert_eq!(
        void.unwrap_err(),
        Void::Failed(Role::Newcomer, "HTTP 429: full".to_owned())
    );
}

#[test]
fn rubbish_makes_it_void() {
    let void = measure("", |request, reply| {
        let long = request.prompt_tokens() == LONG;
        if long {
            sleep(Duration::from_millis(PREFILL_MS));
            reply.open();
            reply.chunk("data: {\"choices\":[oops\n\n");
        }
        long
    });
    let void = void.unwrap_err();
    assert!(
        matches!(&void, Void::Failed(Role::Long, why) if !why.is_empty()),
        "{void:?}"
    );
}

#[test]
fn a_victim_that_breaks_off_makes_it_void() {
    let void = measure("--victims 1", |request, reply| {
        let victim = request.prompt_tokens() == VICTIM;
        if victim {
            reply.open();
            for _ in 0..50 {
                reply.token();
            }
        }
        victim
    });
    let void = void.unwrap_err();
    assert!(matches!(void, Void::Failed(Role::Victim(0), _)), "{void:?}");
}

#[test]
fn a_prompt_that_was_cached_makes_it_void() {
    let void = measure("", |request, reply| {
        let long = request.prompt_tokens() == LONG;
        if long {
            answer_cached(reply, LONG, 2999);
        }
        long
    });
    assert_eq!(void.unwrap_err(), Void::Cached(Role::Long, 2999, 3000));
}

/// An answer to a long prompt of which so much was cached.
fn answer_cached(reply: &mut Reply, prompt: usize, cached: usize) {
    sleep(Duration::from_millis(PREFILL_MS));
    reply.open();
    reply.token();
    let usage = format!(
        "{{\"prompt_tokens\":{prompt},\"completion_tokens\":1,\"prompt_tokens_details\":{{\"cached_tokens\":{cached}}}}}"
    );
    reply.chunk(&format!(
        "data: {{\"choices\":[],\"usage\":{usage}}}\n\ndata: [DONE]\n\n"
    ));
    reply.chunk("");
}

#[test]
fn a_prompt_resumes_behind_what_the_server_has_seen() {
    const DEPTH: usize = 1000;
    for (cached, expected) in [
        (960, Ok(())),
        (0, Err(Void::Forgotten(0, 1000))),
        (3999, Err(Void::Cached(Role::Long, 3999, 4000))),
    ] {
        let seen = Mutex::new(Vec::new());
        let measured = measure(&format!("--resume {DEPTH}"), move |request, reply| {
            let whole = request.body["prompt"].as_array().expect("token ids");
            match whole.len() {
                DEPTH => {
                    assert_eq!(request.body["cache_prompt"], true);
                    seen.lock().unwrap().clone_from(whole);
                    false
                }
                all if all == DEPTH + LONG => {
                    assert_eq!(whole[..DEPTH], seen.lock().unwrap()[..]);
                    answer_cached(reply, all, cached);
                    true
                }
                _ => false,
            }
        });
        assert_eq!(measured.map(|_| ()), expected, "{cached} cached");
    }
}

#[test]
fn a_server_of_text_only_is_asked_with_text() {
    let base = script::serve(|request, reply| {
        if request.body["prompt"].is_array() || request.body.get("ignore_eos").is_some() {
            reply.whole("400 Bad Request", "{\"error\":{\"message\":\"no\"}}");
        } else {
            reply.open();
            reply.token();
            // Two tokens a word.
            reply.finish(128, 1);
        }
    });
    let mut args = options("");
    args.url = base + "/v1/";
    let mut target = Target::open(&args).unwrap();
    assert_eq!(
        target.form(),
        "/v1/completions, prompts as text, answers may end by themselves"
    );
    let body: serde_json::Value = serde_json::from_str(&target.body(100, 1)).unwrap();
    assert_eq!(body["model"], "scripted");
    assert_eq!(body["prompt"].as_str().unwrap().split(' ').count(), 50);
}

#[test]
fn a_server_that_refuses_everything_says_why() {
    let base = script::serve(|_, reply| {
        reply.whole("401 Unauthorized", "{\"error\":{\"message\":\"no key\"}}");
    });
    let mut args = options("");
    args.url = base;
    let error = Target::open(&args).unwrap_err().to_string();
    assert!(error.ends_with("HTTP 401: no key"), "{error}");
}
