//! Counts of a hand-made run, and a trace against a scripted server.

use std::sync::Mutex;
use std::sync::mpsc;

use clap::Parser;

use super::super::script;
use super::*;
use crate::args::{Cli, Command, ProbeArgs};
use crate::trace;

fn options(more: &str) -> ProbeArgs {
    match Cli::parse_from(format!("andante probe {more}").split_whitespace()).command {
        Command::Probe(args) => args,
        _ => panic!("not probe"),
    }
}

/// A request due `due` ms after `start`, sent `late` ms later, with tokens so many ms after the sending.
fn sent(start: Instant, prompt: u32, (due, late): (u64, u64), tokens: &[u64]) -> Sent {
    let ms = Duration::from_millis;
    let at = start + ms(due + late);
    Sent {
        prompt,
        due: start + ms(due),
        answer: Answer {
            sent: at,
            ended: at + ms(*tokens.last().unwrap_or(&0)),
            first_byte: None,
            tokens: tokens.iter().map(|after| at + ms(*after)).collect(),
            usage: None,
            status: Some(200),
            stopped: false,
            failure: None,
        },
    }
}

#[test]
fn every_request_is_counted_once() {
    let start = Instant::now();
    let mut run = vec![
        sent(start, 100, (0, 0), &[1000, 1050, 1100]),
        sent(start, 256, (100, 0), &[2500, 2510]),
        sent(start, 1025, (200, 25), &[500, 700]),
        sent(start, 9000, (300, 0), &[]),
        sent(start, 9000, (400, 0), &[5600]),
    ];
    run[3].answer.failure = Some("HTTP 429: full".to_owned());
    run[4].answer.stopped = true;
    let load = Load::of(&run, options("x").trace.slo);
    assert_eq!((load.requests, load.answered, load.unfinished), (5, 3, 1));
    assert_eq!(
        load.failures,
        BTreeMap::from([("HTTP 429: full".to_owned(), 1)])
    );
    assert_eq!((load.late, load.latest_ms), (1, 25.0));
    // The second waited over 2 s and the third stood still for 200 ms.
    assert_eq!(load.good, 1);
    assert_eq!((load.seconds, load.goodput_per_s), (6.0, 1.0 / 6.0));
    assert_eq!((load.gap_p50_ms, load.gap_p99_ms), (50.0, 200.0));
    assert_eq!(
        (load.longest_gap_p50_ms, load.longest_gap_ms),
        (50.0, 200.0)
    );
    assert_eq!(
        (load.prompt_tokens_per_s, load.generated_tokens_per_s),
        (1381.0 / 6.0, 7.0 / 6.0)
    );
    let wait = |up_to, requests, p50, p99| Wait {
        up_to: Some(up_to),
        requests,
        ttft_p50_s: p50,
        ttft_p90_s: p99,
        ttft_p99_s: p99,
    };
    assert_eq!(
        load.waits,
        [wait(1024, 2, 1.0, 2.5), wait(4096, 1, 0.5, 0.5)]
    );
    // One of five is more than a twentieth.
    assert!(
        load.void()
            .unwrap()
            .starts_with("1 of 5 requests were sent late")
    );
    assert!(Load::of(&run[..2], options("x").trace.slo).void().is_none());
    assert_eq!(
        Load::of(&run[3..4], options("x").trace.slo).void().unwrap(),
        "no request was answered"
    );
}

#[test]
fn requests_do_not_wait_for_earlier_ones() {
    let (send, order) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let (send, gate) = (Mutex::new(send), Mutex::new(gate));
    let base = script::serve(move |request, reply| {
        send.lock().unwrap().send(request.prompt_tokens()).unwrap();
        if request.prompt_tokens() == 10 {
            gate.lock().unwrap().recv().unwrap();
        }
        if request.prompt_tokens() == 30 {
            // The first is answered only when the third has come.
            go.send(()).unwrap();
        }
        reply.answer(request);
    });
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
                2023-11-16 18:15:46.0000000,10,3\n\
                2023-11-16 18:15:47.0000000,5000,3\n\
                2023-11-16 18:15:48.0000000,20,2\n\
                2023-11-16 18:15:49.0000000,30,1\n\
                2023-11-16 18:15:50.0000000,40,1\n";
    let args = options(&format!(
        "{base} --time-scale 0.1 --max-prompt 100 --limit 4"
    ));
    let requests = trace::parse(text, usize::MAX).unwrap();
    let requests = trace::select(requests, &args.trace.load);
    let mut target = Target::open(&args).unwrap();
    let sent = run(&mut target, &requests, Duration::from_secs(60)).unwrap();
    assert_eq!(order.try_iter().skip(1).collect::<Vec<_>>(), [10, 20, 30]);
    let load = Load::of(&sent, args.trace.slo);
    assert_eq!(
        (load.requests, load.answered, load.failures.len()),
        (3, 3, 0)
    );
    let tokens: Vec<_> = sent.iter().map(|sent| sent.answer.tokens.len()).collect();
    assert_eq!(tokens, [3, 2, 1]);
    // 3 s later in the trace, a tenth of that here.
    assert_eq!(sent[2].due - sent[0].due, Duration::from_millis(300));
    assert!(load.table(args.trace.slo).contains("| up to 1024 | 3 |"));
    assert!(figure(&sent).unwrap().starts_with("<svg"));
}
