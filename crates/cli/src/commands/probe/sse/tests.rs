//! Events must not depend on how the bytes were split on their way.

use std::time::Duration;

use super::*;

const STREAM: &[u8] =
    b": hello\n\ndata: {\"a\":1}\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\nid: 7\n\ndata: [DONE]\n\ndata: cut off\n";

/// `bytes` in pieces, the n-th of which came n seconds after `start`.
fn body(start: Instant, pieces: &[&[u8]]) -> Body {
    let mut body = Body::default();
    for (second, piece) in pieces.iter().enumerate() {
        body.push(start + Duration::from_secs(second as u64), piece);
    }
    body
}

fn data(body: &Body) -> Vec<Vec<u8>> {
    body.events().into_iter().map(|event| event.data).collect()
}

#[test]
fn every_split_gives_the_same_events() {
    let start = Instant::now();
    let expected: [&[u8]; 3] = [b"{\"a\":1}", b"two\nlines", b"[DONE]"];
    assert_eq!(data(&body(start, &[STREAM])), expected);
    for cut in 1..STREAM.len() {
        let (head, tail) = STREAM.split_at(cut);
        assert_eq!(data(&body(start, &[head, tail])), expected, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = STREAM.chunks(1).collect();
    assert_eq!(data(&body(start, &bytes)), expected);
}

#[test]
fn an_event_has_the_time_of_the_read_that_completed_its_data() {
    let start = Instant::now();
    let pieces: [&[u8]; 4] = [b"data: o", b"ne", b"\n\ndata: two\n\ndata: three", b"\n\n"];
    let times: Vec<u64> = body(start, &pieces)
        .events()
        .iter()
        .map(|event| (event.at - start).as_secs())
        .collect();
    assert_eq!(times, [1, 2, 2]);
}

#[test]
fn blank_lines_are_counted_across_reads() {
    for cut in 1..STREAM.len() {
        let (head, tail) = STREAM.split_at(cut);
        let mut count = EventCount::default();
        // The comment and the id make blank lines too: the count paces the probe, it is not a result.
        assert_eq!(count.add(head) + count.add(tail), 5, "cut at {cut}");
    }
}
