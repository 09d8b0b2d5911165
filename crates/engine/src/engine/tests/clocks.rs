//! Places and clocks: who is let in, how long anything may take, and that a client which leaves leaves nothing behind.

use std::sync::OnceLock;

use super::*;

/// Steps until the engine has nothing to do, at most to `until_us`; gives the time that it asks to be woken at.
fn run_to(rig: &mut Rig, until_us: u64) -> Option<u64> {
    loop {
        match rig.step() {
            Progress::Stepped if rig.clock.now_us() < until_us => {}
            Progress::Stepped | Progress::Ended => return None,
            Progress::Waiting { until_us: wake } => return wake,
        }
    }
}

#[test]
fn f24_the_queue_has_a_clock_of_its_own() {
    let config = EngineConfig {
        sessions: 1,
        queue_timeout_s: Some(10),
        first_token_timeout_s: Some(5),
        ring_events: 4,
        ..small()
    };
    let mut rig = Rig::ticking(&config);
    let mut runs = rig.submit("RUNS", greedy(100));
    let waits = rig.submit("WAITS", greedy(3));
    // The running one fills its ring and is parked; the other waits for its place.
    assert_eq!(run_to(&mut rig, u64::MAX), Some(10_000_000));
    rig.clock.advance(9_000_000);
    let late = rig.submit("LATE", greedy(3));
    rig.clock.advance(1_000_000);
    rig.step();
    assert_eq!(Answer::of(waits).end, Event::Failed(Failure::QueueTimeout));
    assert_eq!(
        rig.engine.scheduler.stats().queued,
        1,
        "out of the queue in one step"
    );
    // A request that was in the queue for longer than its first token may take gets all of that time once it is admitted.
    rig.clock.advance(7_000_000);
    while let Some(event) = runs.try_recv() {
        assert!(!matches!(event, Event::Failed(_)));
        rig.step();
    }
    rig.settle();
    assert_eq!(Answer::of(late).text, letters("LATE", 3));
    rig.assert_empty();
}

#[test]
fn f24_a_prompt_that_takes_too_long_fails_and_frees_all_it_holds_in_one_step() {
    let clock = Arc::new(VirtualClock::default());
    let ticks = Arc::clone(&clock);
    let model = FakeModel::new(VOCAB).on_forward(move |batch| {
        // One prompt token takes a second, a decode row a millisecond.
        let prompt = batch
            .tokens
            .iter()
            .filter(|&&token| token == u32::from(b'P'))
            .count() as u64;
        ticks.advance(prompt * 1_000_000 + 1000);
    });
    let config = EngineConfig {
        first_token_timeout_s: Some(20),
        ..small()
    };
    let mut rig = Rig::on_clock(model, &config, clock);
    let quick = rig.submit("A", greedy(100));
    let slow = rig.submit(&"P".repeat(200), greedy(3));
    rig.step();
    let mut steps = 0;
    while rig.engine.scheduler.stats().resident == 2 {
        rig.step();
        steps += 1;
        assert!(steps < 100, "it never ends");
    }
    let stats = rig.engine.scheduler.stats();
    assert!(
        stats.blocks.used <= 7,
        "only those of the other one: {:?}",
        stats.blocks
    );
    assert_eq!(
        Answer::of(slow).end,
        Event::Failed(Failure::FirstTokenTimeout)
    );
    rig.settle();
    assert_eq!(Answer::of(quick).text, letters("A", 100));
    rig.assert_empty();
}

#[test]
fn f24_an_engine_that_waits_wakes_for_the_queue_timeout() {
    let config = EngineConfig {
        sessions: 1,
        queue_timeout_s: Some(1),
        ring_events: 1,
        ..small()
    };
    let (handle, thread) =
        spawn(FakeModel::new(VOCAB).boxed(), text_stack(), &config).expect("a thread");
    let ask = |prompt: &str| {
        let request = handle
            .prepare_text(PromptInput::Text(prompt.into()), greedy(50))
            .expect("valid");
        handle.submit(request).expect("room")
    };
    let mut parked = ask("PARKED");
    assert!(matches!(
        parked.recv_blocking(),
        Some(Event::Started { .. })
    ));
    let mut waits = ask("WAITS");
    // Nothing else ever arrives.
    assert_eq!(
        waits.recv_blocking(),
        Some(Event::Failed(Failure::QueueTimeout))
    );
    drop((parked, waits, handle));
    thread.join().expect("the engine works");
}

#[test]
fn f25_an_idle_engine_refuses_nobody_whatever_it_expects() {
    let clock = Arc::new(VirtualClock::default());
    let ticks = Arc::clone(&clock);
    // A second per row: the fitted drain time of a prompt is minutes.
    let model = FakeModel::new(VOCAB).on_forward(move |batch| {
        ticks.advance(1_000_000 * batch.len() as u64);
    });
    let config = EngineConfig {
        sessions: 1,
        max_queue: 0,
        ..small()
    };
    let mut rig = Rig::on_clock(model, &config, clock);
    for _ in 0..20 {
        let stream = rig.submit(&long(150), greedy(2));
        let refused = rig.handle.submit(rig.request("B", greedy(2)));
        assert!(
            matches!(refused, Err(SubmitError::QueueFull { .. })),
            "one place only"
        );
        rig.settle();
        assert!(matches!(Answer::of(stream).end, Event::Finished { .. }));
    }
    // Whoever is refused while it is busy hears how long the work takes, not a constant.
    let prompt = long(150).replace("FOX", "DOG");
    let _busy = rig.submit(&prompt, greedy(100));
    rig.step();
    match rig.handle.submit(rig.request("B", greedy(2))) {
        Err(SubmitError::QueueFull { retry_after_s }) => {
            assert!((30..3600).contains(&retry_after_s), "{retry_after_s} s");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_retry_does_not_meet_its_own_ghost() {
    let config = EngineConfig {
        sessions: 1,
        max_queue: 1,
        ..small()
    };
    let mut rig = Rig::new(FakeModel::new(VOCAB), &config);
    let running = rig.submit("RUNS", greedy(50));
    rig.step();
    // In the mailbox, in the queue, and running: the place is free as soon as the client is gone, before any step.
    let mut queued = rig.submit("WAITS", greedy(50));
    for round in 0..3 {
        drop(queued);
        queued = rig.submit("WAITS", greedy(50));
        if round > 0 {
            rig.step();
        }
        assert!(
            rig.engine.scheduler.stats().queued <= 1,
            "the ghost left the queue first"
        );
    }
    drop(running);
    let next = rig.submit("NEXT", greedy(5));
    rig.settle();
    assert_eq!(Answer::of(queued).text, letters("WAITS", 50));
    assert_eq!(Answer::of(next).text, letters("NEXT", 5));
    assert_eq!(rig.handle.status().cancelled, 4);
    rig.assert_empty();
}

#[test]
fn more_short_sequences_than_sessions_share_the_memory() {
    let config = EngineConfig {
        sessions: 1,
        max_active: 4,
        max_queue: 0,
        ..small()
    };
    let mut rig = Rig::new(FakeModel::new(VOCAB), &config);
    let streams: Vec<_> = ["A", "B", "C", "D"]
        .map(|prompt| rig.submit(prompt, greedy(20)))
        .into();
    rig.step();
    rig.step();
    assert_eq!(rig.engine.scheduler.stats().resident, 4);
    assert!(rig.handle.submit(rig.request("E", greedy(1))).is_err());
    rig.settle();
    for (stream, prompt) in streams.into_iter().zip(["A", "B", "C", "D"]) {
        assert_eq!(Answer::of(stream).text, letters(prompt, 20));
    }
    // Two that need more than the memory of one session run one after the other.
    let both = [0, 1].map(|_| rig.submit(&long(100), greedy(100)));
    rig.step();
    let stats = rig.engine.scheduler.stats();
    assert_eq!((stats.resident, stats.queued), (1, 1));
    rig.settle();
    for stream in both {
        assert_eq!(Answer::of(stream).text, letters(&long(100), 100));
    }
    rig.assert_empty();
}

#[test]
fn f22_a_slow_reader_holds_up_nobody_in_the_queue_either() {
    let config = EngineConfig {
        sessions: 2,
        ring_events: 2,
        ..small()
    };
    let mut rig = Rig::new(FakeModel::new(VOCAB), &config);
    let slow = rig.submit("SLOW", greedy(100));
    rig.settle();
    assert_eq!(rig.engine.scheduler.stats().parked, 1);
    for prompt in ["A", "B", "C"] {
        let mut stream = rig.submit(prompt, greedy(30));
        let mut events = Vec::new();
        while !stream.is_done() {
            let before = rig.engine.scheduler.stats().steps;
            rig.step();
            assert!(
                rig.engine.scheduler.stats().steps > before,
                "every step brings a token"
            );
            events.extend(std::iter::from_fn(|| stream.try_recv()));
        }
        assert_eq!(Answer::from_events(&events).text, letters(prompt, 30));
    }
    assert!(slow.ring_len() <= 3, "its events stay within the ring");
    drop(slow);
    rig.settle();
    rig.assert_empty();
}

#[test]
fn a_bound_that_the_machine_cannot_keep_is_told_with_what_it_can() {
    let clock = Arc::new(VirtualClock::default());
    let ticks = Arc::clone(&clock);
    let model = FakeModel::new(VOCAB).on_forward(move |_| ticks.advance(150_000));
    let mut rig = Rig::on_clock(model, &small(), clock);
    assert_eq!(rig.handle.status().scheduler.stall_kept, None);
    rig.answer("A", greedy(60));
    assert!(rig.engine.told_stall);
    let status = rig.handle.status();
    assert_eq!(status.stall_asked_us, Some(100_000));
    let (kept_us, limit) = status
        .scheduler
        .stall_kept
        .expect("no step is below 150 ms");
    assert_eq!(limit, andante_sched::StallLimit::Decode);
    assert!((140_000..200_000).contains(&kept_us), "{kept_us}");
}

#[test]
fn a_step_under_way_has_an_age() {
    let clock = Arc::new(VirtualClock::default());
    let seen: Arc<Mutex<Vec<Option<Duration>>>> = Arc::default();
    let handle: Arc<OnceLock<EngineHandle>> = Arc::default();
    let (ticks, ages, watched) = (Arc::clone(&clock), Arc::clone(&seen), Arc::clone(&handle));
    let model = FakeModel::new(VOCAB).on_forward(move |_| {
        ticks.advance(7_000_000);
        let handle: &EngineHandle = watched.get().unwrap();
        ages.lock().unwrap().push(handle.step_age());
    });
    let mut rig = Rig::on_clock(model, &small(), clock);
    assert!(handle.set(rig.handle.clone()).is_ok());
    rig.clock.advance(1);
    let answer = rig.submit("ABC", greedy(1));
    assert_eq!(rig.handle.step_age(), None);
    rig.settle();
    assert_eq!(Answer::of(answer).text, letters("ABC", 1));
    assert_eq!(rig.handle.step_age(), None, "between steps");
    assert_eq!(*seen.lock().unwrap(), [Some(Duration::from_secs(7))]);
}
