//! Both forms of traces, and lines that are none.

use super::*;

const CSV: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
                   2023-11-16 23:59:59.9799600,4808,10\n\
                   2023-11-17 00:00:00.0319600,3180,0\r\n";

fn fault(text: &str) -> (usize, Fault) {
    match parse(text, usize::MAX) {
        Err(TraceError::Line { line, fault }) => (line, fault),
        other => panic!("{other:?}"),
    }
}

#[test]
fn csv_gives_lengths_and_times_since_the_first() {
    let requests = parse(CSV, usize::MAX).unwrap();
    let seen: Vec<_> = requests
        .iter()
        .map(|request| (request.arrival_us, request.prompt.len(), request.answer))
        .collect();
    // Over midnight, 52 ms later; an answer has at least its first token.
    assert_eq!(seen, [(0, 4808, 10), (52_000, 3180, 1)]);
    assert!(!requests[0].prompt.has_content());
    assert_eq!(parse(CSV, 1).unwrap().len(), 1);
}

#[test]
fn json_lines_give_common_prefixes() {
    let text = r#"{"timestamp": 5, "input_length": 600, "output_length": 2, "hash_ids": [7, 8]}
{"timestamp": 6.5, "input_length": 1100, "output_length": 3, "hash_ids": [7, 9, 10]}
{"timestamp": 7, "input_length": 3, "output_length": 3}"#;
    let requests = parse(text, usize::MAX).unwrap();
    assert_eq!(requests[1].arrival_us, 1500);
    let prompts = [requests[0].prompt.tokens(), requests[1].prompt.tokens()];
    assert_eq!((prompts[0].len(), prompts[1].len()), (600, 1100));
    let common = prompts[0]
        .iter()
        .zip(&prompts[1])
        .take_while(|(a, b)| a == b);
    assert_eq!(common.count(), 512);
    assert_eq!(requests[2].prompt, Prompt::Length(3));
}

#[test]
fn a_bad_line_is_named() {
    let line = |text: &str| fault(&format!("{CSV}\n{text}"));
    assert_eq!(line("2023-11-17 00:00:01,12"), (5, Fault::Columns));
    assert_eq!(line("2023-11-17 00:00:01,12,3,4"), (5, Fault::Columns));
    assert_eq!(line("yesterday,12,3"), (5, Fault::Timestamp));
    assert_eq!(line("2023-11-17 00:00:01,-12,3"), (5, Fault::Tokens));
    assert_eq!(line("2023-11-17 00:00:01,12,99999999"), (5, Fault::Tokens));
    assert_eq!(line("2023-11-17 00:00:01,0,3"), (5, Fault::EmptyPrompt));
    assert_eq!(line("2023-11-16 00:00:01,12,3"), (5, Fault::Order));
    let json = r#"{"timestamp": 5, "input_length": 600, "output_length": 2, "hash_ids": [7]}"#;
    assert_eq!(
        fault(json),
        (
            1,
            Fault::HashIds {
                needed: 2,
                given: 1
            }
        )
    );
    assert_eq!(
        fault(r#"{"timestamp": 5, "input_length": 600}"#),
        (1, Fault::Json)
    );
    assert_eq!(
        parse("a,b\n", usize::MAX).unwrap_err(),
        TraceError::UnknownForm
    );
    assert_eq!(
        parse("TIMESTAMP,ContextTokens,GeneratedTokens\n\n", usize::MAX).unwrap_err(),
        TraceError::Empty
    );
}
