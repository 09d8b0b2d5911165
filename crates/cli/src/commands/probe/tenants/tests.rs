//! Shares of hand-made runs, and clients against a scripted server.

use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;

use super::super::script;
use super::*;
use crate::args::{Cli, Command};

/// An answer sent at `sent` whose tokens came at `tokens`; seconds after `start`.
fn answer(start: Instant, sent: u64, tokens: &[u64]) -> Answer {
    let at = |second: &u64| start + Duration::from_secs(*second);
    Answer {
        sent: at(&sent),
        ended: at(tokens.last().unwrap_or(&1000)),
        first_byte: None,
        tokens: tokens.iter().map(at).collect(),
        usage: None,
        status: Some(200),
        stopped: false,
        failure: None,
    }
}

fn run(start: Instant, answers: Vec<Vec<Answer>>) -> Run {
    Run {
        span: Window {
            start: start + Duration::from_secs(10),
            end: start + Duration::from_secs(90),
        },
        prompt: 100,
        answers,
        samples: Vec::new(),
    }
}

#[test]
fn only_the_time_in_which_all_wait_counts() {
    let start = Instant::now();
    // The first tenant waits until 80, the second until 70 and again from 75: common are 10–70 and 75–80.
    let first = vec![answer(start, 0, &[80, 81]), answer(start, 0, &[20, 30, 40])];
    let second = vec![
        answer(start, 5, &[70, 72, 76]),
        answer(start, 75, &[]),
        answer(start, 0, &[20, 78]),
    ];
    let shares = run(start, vec![first, second]).shares().unwrap();
    assert_eq!((shares.measured_s, shares.backlogged_s), (80.0, 65.0));
    let got: Vec<_> = shares
        .tenants
        .iter()
        .map(|tenant| {
            (
                tenant.prompt_tokens,
                tenant.generated_tokens,
                tenant.weighted_tokens,
            )
        })
        .collect();
    // Tokens at 80, 20, 30, 40 and prompts at 80 and 20; tokens at 70, 76, 20, 78 (not 72) and prompts at 70 and 20.
    assert_eq!(got, [(200, 4, 208.0), (200, 4, 208.0)]);
    assert_eq!(
        (shares.jain_tokens, shares.jain_service, shares.spread),
        (1.0, None, 0.0)
    );
}

#[test]
fn the_servers_account_counts_only_between_samples_in_which_all_wait() {
    let start = Instant::now();
    let at = |second| start + Duration::from_secs(second);
    let mut run = run(
        start,
        vec![vec![answer(start, 0, &[60])], vec![answer(start, 0, &[90])]],
    );
    // Between 50 and 70 they wait together for half of the time only.
    run.samples = vec![
        (at(0), vec![0.0, 0.0]),
        (at(10), vec![5.0, 0.0]),
        (at(30), vec![8.0, 1.0]),
        (at(50), vec![10.0, 2.0]),
        (at(70), vec![10.0, 9.0]),
    ];
    let shares = run.shares().unwrap();
    let service: Vec<_> = shares
        .tenants
        .iter()
        .map(|tenant| tenant.service_s)
        .collect();
    assert_eq!(service, [Some(5.0), Some(2.0)]);
    assert_eq!(shares.jain_service, Some(49.0 / (2.0 * 29.0)));
    assert_eq!(shares.spread, 3.0 / 3.5);
}

#[test]
fn tenants_that_do_not_wait_make_it_void() {
    let start = Instant::now();
    let idle = vec![answer(start, 0, &[20])];
    let void = run(start, vec![vec![answer(start, 0, &[90])], idle])
        .shares()
        .unwrap_err();
    assert!(void.contains("only 12 %"), "{void}");
}

#[test]
fn a_broken_answer_makes_it_void_and_a_refusal_does_not() {
    let start = Instant::now();
    let refused = Answer {
        status: Some(429),
        failure: Some("HTTP 429: full".to_owned()),
        ..answer(start, 0, &[])
    };
    let waiting = || answer(start, 0, &[90]);
    let shares = run(start, vec![vec![waiting(), refused], vec![waiting()]])
        .shares()
        .unwrap();
    assert_eq!(shares.tenants[0].refused, 1);
    let broken = Answer {
        failure: Some("gone".to_owned()),
        ..waiting()
    };
    let void = run(start, vec![vec![waiting()], vec![waiting(), broken]])
        .shares()
        .unwrap_err();
    assert_eq!(void, "a request of tenant-1 failed: gone");
}

#[test]
fn windows_are_merged_and_cut() {
    let start = Instant::now();
    let window = |from, to| Window {
        start: start + Duration::from_secs(from),
        end: start + Duration::from_secs(to),
    };
    let merged = union(vec![window(5, 9), window(0, 2), window(1, 3), window(6, 7)]);
    assert_eq!(merged, [window(0, 3), window(5, 9)]);
    assert_eq!(
        intersection(&merged, &[window(2, 6), window(8, 12)]),
        [window(2, 3), window(5, 6), window(8, 9)]
    );
}

/// A server that answers one request at a time, in the order of arrival, and keeps an account.
#[test]
fn a_greedy_tenant_shows_in_the_index() {
    let turn = Mutex::new(());
    let service: [AtomicU64; 2] = Default::default();
    let base = script::serve(move |request, reply| {
        if request.path == "/scheduler" {
            let tenants = service.iter().enumerate().map(|(tenant, us)| {
                serde_json::json!({"name": name(tenant), "service_us": us.load(Ordering::SeqCst)})
            });
            let state = serde_json::json!({"tenants": tenants.collect::<Vec<_>>()});
            return reply.whole("200 OK", &state.to_string());
        }
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        thread::sleep(Duration::from_millis(5));
        if let Some(tenant) = (0..2).find(|tenant| {
            request
                .headers
                .contains(&format!("x-tenant: {}", name(*tenant)))
        }) {
            service[tenant].fetch_add(5000, Ordering::SeqCst);
        }
        reply.answer(request);
    });
    let line = format!(
        "andante probe {base} --tenants 2 --hog 10 --clients 2 --seconds 3 --prompt 10 --answer 2"
    );
    let Command::Probe(args) = Cli::parse_from(line.split_whitespace()).command else {
        panic!("not probe")
    };
    let run = super::run(&mut Target::open(&args).unwrap(), &args.tenants).unwrap();
    let shares = run.shares().unwrap();
    assert!(
        shares.tenants[0].weighted_tokens > 2.0 * shares.tenants[1].weighted_tokens,
        "{shares:?}"
    );
    assert!(
        shares.jain_tokens < 0.9 && shares.jain_service.unwrap() < 0.9,
        "{shares:?}"
    );
    assert!(shares.table().contains("| tenant-1 |"));
    assert!(figure(&run).unwrap().contains("tenant-1"));
}
