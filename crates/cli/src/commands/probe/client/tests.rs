//! Events must reach the probe when they are sent, and a stop must end a read that waits.

use std::sync::mpsc;

use super::super::script;
use super::*;

fn endpoint(base: String) -> Endpoint {
    Endpoint {
        base,
        path: "/v1/completions",
        key: Some("secret".to_owned()),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn each_event_arrives_before_the_next_is_sent() {
    const EVENTS: usize = 20;
    let (go, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let base = script::serve(move |_, reply| {
        reply.open();
        for _ in 0..EVENTS {
            reply.token();
            gate.lock().unwrap().recv().unwrap();
        }
        reply.finish(1, EVENTS as u64);
    });
    let running = endpoint(base).start("{}".to_owned(), None).unwrap();
    for event in 1..=EVENTS {
        // A client that gathered events would wait for ever here, for the server waits too.
        assert!(
            running.wait_for(event, soon()),
            "event {event} was held back"
        );
        assert_eq!(running.events(), event);
        go.send(()).unwrap();
    }
    let recording = running.finish(soon());
    assert_eq!(
        (recording.status, recording.broken.as_deref()),
        (Some(200), None)
    );
    let times: Vec<_> = recording
        .body
        .events()
        .iter()
        .map(|event| event.at)
        .collect();
    assert_eq!(times.len(), EVENTS + 3, "finish, usage and [DONE] follow");
    assert!(times.is_sorted() && times[0] >= recording.sent);
}

#[test]
fn a_stop_ends_a_read_that_would_wait_for_ever() {
    let base = script::serve(|_, reply| {
        reply.open();
        reply.token();
        thread::park();
    });
    let running = endpoint(base).start("{}".to_owned(), None).unwrap();
    assert!(running.wait_for(1, soon()));
    let recording = running.stop();
    assert!(recording.stopped && recording.broken.is_none());
    assert_eq!(recording.body.events().len(), 1);
}

#[test]
fn a_deadline_ends_the_wait() {
    let base = script::serve(|_, _| thread::park());
    let running = endpoint(base).start("{}".to_owned(), None).unwrap();
    assert!(!running.wait_for(1, Instant::now()));
    let recording = running.finish(Instant::now());
    assert!(recording.stopped && recording.body.bytes.is_empty());
}

#[test]
fn key_and_tenant_go_into_headers() {
    let (send, headers) = mpsc::channel();
    let base = script::serve(move |request, reply| {
        send.send(request.headers.clone()).unwrap();
        reply.whole(
            "429 Too Many Requests",
            "{\"error\":{\"message\":\"later\"}}",
        );
    });
    let tenant = Some("tenant-1".to_owned());
    let running = endpoint(base).start("{}".to_owned(), tenant).unwrap();
    assert_eq!(running.finish(soon()).status, Some(429));
    let headers = headers.recv().unwrap();
    assert!(
        headers.contains(&"authorization: bearer secret".to_owned()),
        "{headers:?}"
    );
    assert!(headers.contains(&"x-tenant: tenant-1".to_owned()));
}
