//! The ring between engine and client: order, bounds, wake-ups, and an end for every stream.

use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

use super::*;
use crate::mailbox::{Inbox, mailbox};
use crate::places::Places;

fn text(text: &str) -> Event {
    Event::Token(Delta {
        parts: vec![Part::Text(text.into())],
        logprobs: Vec::new(),
    })
}

fn finished() -> Event {
    Event::Finished {
        reason: FinishReason::Length,
        usage: Usage::default(),
        timings: Timings::default(),
    }
}

fn ring_of(capacity: usize) -> (EventSink, EventStream, Inbox) {
    let (mailbox, inbox) = mailbox();
    let permit = Places::new(1).take().expect("a free place");
    let (sink, stream) = ring(7, capacity, mailbox, permit);
    (sink, stream, inbox)
}

#[test]
fn events_arrive_in_order_and_nothing_follows_the_end() {
    let (mut sink, mut stream, mut inbox) = ring_of(8);
    sink.push(text("a"));
    sink.push(text("b"));
    sink.push(finished());
    drop(sink);
    let all: Vec<_> = std::iter::from_fn(|| stream.recv_blocking()).collect();
    assert_eq!(all, [text("a"), text("b"), finished()]);
    assert!(stream.is_done());
    drop(stream);
    assert!(
        inbox.next().is_none(),
        "a stream read to its end cancels nothing"
    );
}

#[test]
fn a_full_ring_says_so_and_asks_to_go_on_at_half() {
    let (mut sink, mut stream, mut inbox) = ring_of(4);
    for i in 0..3 {
        assert_eq!(sink.push(text("x")), Pushed::Room, "event {i}");
    }
    assert_eq!(sink.push(text("x")), Pushed::Full);
    stream.try_recv();
    assert!(
        inbox.next().is_none(),
        "three of four places are still taken"
    );
    stream.try_recv();
    assert!(matches!(inbox.next(), Some(Command::Unpark(7))));
    stream.try_recv();
    assert!(inbox.next().is_none(), "one wake-up for one parking");
}

#[test]
fn the_end_fits_a_full_ring() {
    let (mut sink, mut stream, _inbox) = ring_of(1);
    assert_eq!(sink.push(text("x")), Pushed::Full);
    sink.push(finished());
    drop(sink);
    assert_eq!(stream.try_recv(), Some(text("x")));
    assert_eq!(stream.try_recv(), Some(finished()));
    assert_eq!(stream.recv_blocking(), None);
}

#[test]
fn a_lost_sink_fails_its_stream() {
    let (mut sink, mut stream, _inbox) = ring_of(8);
    sink.push(text("x"));
    let panicked = std::thread::spawn(move || {
        let _sink = sink;
        panic!("a bug on the engine thread");
    })
    .join();
    assert!(panicked.is_err());
    assert_eq!(stream.recv_blocking(), Some(text("x")));
    assert_eq!(
        stream.recv_blocking(),
        Some(Event::Failed(Failure::EngineStopped))
    );
    assert_eq!(stream.recv_blocking(), None);
}

#[test]
fn a_dropped_stream_cancels_and_closes() {
    let (mut sink, stream, mut inbox) = ring_of(8);
    drop(stream);
    assert!(matches!(inbox.next(), Some(Command::Cancel(7))));
    assert_eq!(sink.push(text("x")), Pushed::Closed);
}

#[test]
fn a_blocked_reader_wakes_for_an_event() {
    let (mut sink, mut stream, _inbox) = ring_of(8);
    let reader = std::thread::spawn(move || stream.recv_blocking());
    sink.push(text("x"));
    assert_eq!(reader.join().expect("the reader ends"), Some(text("x")));
}

#[test]
fn a_polling_reader_is_woken_once_for_each_pending_poll() {
    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (mut sink, mut stream, _inbox) = ring_of(8);
    let count = Arc::new(Count(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let mut poll =
        |stream: &mut EventStream| futures_core::Stream::poll_next(Pin::new(stream), &mut context);
    assert!(poll(&mut stream).is_pending());
    sink.push(text("x"));
    sink.push(finished());
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert_eq!(poll(&mut stream), Poll::Ready(Some(text("x"))));
    assert_eq!(poll(&mut stream), Poll::Ready(Some(finished())));
    assert_eq!(poll(&mut stream), Poll::Ready(None));
}

#[test]
fn a_place_is_free_once_the_end_can_be_read_or_the_cancel_is_sent() {
    let places = Places::new(1);
    let (mailbox, mut inbox) = mailbox();
    let open = || ring(7, 8, mailbox.clone(), places.take().expect("a free place"));
    let (mut sink, stream) = open();
    assert!(places.take().is_none());
    sink.push(finished());
    assert!(places.take().is_some(), "the end is there to be read");
    drop((sink, stream));
    let (sink, stream) = open();
    drop(stream);
    assert!(matches!(inbox.next(), Some(Command::Cancel(7))));
    assert!(places.take().is_some(), "though the engine holds the sink");
    drop(sink);
    assert!(places.take().is_some(), "and it is given back once");
    assert_eq!(places.most(), 1);
}
