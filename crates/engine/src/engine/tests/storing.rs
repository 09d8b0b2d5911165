//! Loading and saving KV: planned, bounded, cancellable, and never a reason for wrong tokens.

use super::*;
use crate::fake::FakeStore;
use crate::status::IoRecord;

/// 1 ms a pass and 0.1 ms a row; a unit of I/O takes 2 ms and 1 ms a block.
fn rig(config: &EngineConfig, change: impl FnOnce(FakeStore) -> FakeStore) -> Rig {
    rig_with(config, (2000, 1000), change)
}

/// A unit of I/O takes `io.0` and `io.1` a block, in µs.
fn rig_with(
    config: &EngineConfig,
    io: (u64, u64),
    change: impl FnOnce(FakeStore) -> FakeStore,
) -> Rig {
    let clock = Arc::new(VirtualClock::default());
    let ticks = Arc::clone(&clock);
    let model = FakeModel::new(VOCAB)
        .on_forward(move |batch| ticks.advance(1000 + 100 * batch.len() as u64));
    let store = change(model.store(Arc::clone(&clock), io.0, io.1));
    let mut rig = Rig::on_clock(model, config, clock);
    rig.engine = rig.engine.with_store(Box::new(store));
    rig
}

/// Memory for little more than one sequence, so that what was computed is soon only in the store.
fn tight() -> EngineConfig {
    EngineConfig {
        sessions: 2,
        context: 160,
        max_queue: 10,
        max_stall_ms: 20,
        ..small()
    }
}

/// Other prompts, until nothing of `prompt` is left in memory.
fn evict(rig: &mut Rig) {
    for number in 0..6 {
        rig.answer(&format!("{number}{}", long(120)), greedy(2));
    }
}

fn idle(rig: &mut Rig) {
    for _ in 0..100_000 {
        match rig.step() {
            Progress::Stepped => {}
            Progress::Waiting { until_us: None } => return,
            Progress::Waiting { .. } => rig.clock.advance(1000),
            Progress::Ended => panic!("nobody asked for it"),
        }
    }
    panic!("it never rests");
}

#[test]
fn what_was_evicted_is_loaded_and_not_computed_again() {
    let mut rig = rig(&tight(), |store| store);
    let first = rig.answer(&long(100), greedy(5));
    evict(&mut rig);
    let before = rig.engine.scheduler.stats();
    assert!(before.saved_blocks > 6);
    let again = rig.answer(&long(100), greedy(5));
    let after = rig.engine.scheduler.stats();
    assert_eq!(again.text, first.text);
    assert_eq!(after.loaded_tokens - before.loaded_tokens, 96);
    assert_eq!(again.usage().cached_tokens, 96);
    assert_eq!(after.prefill_tokens - before.prefill_tokens, 4);
    rig.assert_empty();
}

#[test]
fn f3_a_load_is_part_of_a_bounded_step_and_answers_go_on_beside_it() {
    let mut rig = rig(&tight(), |store| store);
    let first = rig.answer(&long(120), greedy(2));
    evict(&mut rig);
    let running = rig.submit("RUNNING", greedy(60));
    for _ in 0..5 {
        rig.step();
    }
    let resumed = rig.submit(&long(120), greedy(2));
    let (mut loads, mut ends) = (0, Vec::new());
    while !ends.contains(&true) {
        assert!(matches!(rig.step(), Progress::Stepped));
        let step = last_step(&rig.engine);
        ends.push(resumed.is_done() || resumed.ring_len() > 1);
        if let Some(IoRecord::Load { blocks, .. }) = step.io {
            loads += blocks;
            assert_eq!(step.decode.len(), 1, "the answer goes on in the same step");
        }
        // One unit may be longer than was guessed before the first was measured.
        assert!(step.actual_us <= 20_000, "{step:?}");
    }
    assert!(loads >= 5, "{loads}");
    rig.settle();
    let resumed = Answer::of(resumed);
    assert_eq!(resumed.text, first.text);
    // What is cheaper to compute is computed: at least five of seven blocks were not.
    assert_eq!(resumed.cached, Some(16 * loads));
    assert_eq!(Answer::of(running).text, letters("RUNNING", 60));
    idle(&mut rig);
    rig.assert_empty();
}

#[test]
fn f21_a_load_that_never_ends_is_given_up_at_its_deadline() {
    let mut rig = rig(&tight(), FakeStore::stuck);
    rig.answer(&long(120), greedy(2));
    evict(&mut rig);
    let (stays, leaves) = ([(); 2].map(|()| rig.submit(&long(120), greedy(2)))).into();
    for _ in 0..3 {
        rig.step();
    }
    drop(leaves);
    // The others do not wait for it.
    assert_eq!(rig.answer("OTHER", greedy(3)).text, letters("OTHER", 3));
    assert!(rig.engine.store.as_ref().is_some_and(Stores::is_late));
    assert!(rig.engine.scheduler.stats().blocks.used > 0);
    idle(&mut rig);
    assert!(rig.clock.now_us() > crate::store::LATE_US);
    let stats = rig.engine.scheduler.stats();
    assert!(stats.io_failures >= 1 && stats.loaded_tokens == 0);
    assert_eq!(
        Answer::of(stays).text,
        letters(&long(120), 2),
        "computed instead"
    );
    rig.assert_empty();
}

#[test]
fn f21_the_owner_of_a_late_load_drains_until_the_store_has_answered() {
    let mut rig = rig(&tight(), |store| store.late(1));
    let first = rig.answer(&long(120), greedy(2));
    idle(&mut rig);
    evict(&mut rig);
    idle(&mut rig);
    let leaves = rig.submit(&long(120), greedy(2));
    loop {
        rig.step();
        if matches!(last_step(&rig.engine).io, Some(IoRecord::Load { .. })) {
            break;
        }
    }
    drop(leaves);
    rig.engine.apply();
    let stats = rig.engine.scheduler.stats();
    assert_eq!(stats.resident, 1, "its blocks are being written");
    assert!(stats.blocks.used > 0);
    // Others are served meanwhile.
    assert_eq!(rig.answer("OTHER", greedy(3)).text, letters("OTHER", 3));
    idle(&mut rig);
    rig.assert_empty();
    let again = rig.submit(&long(120), greedy(2));
    idle(&mut rig);
    assert_eq!(Answer::of(again).text, first.text);
    rig.assert_empty();
}

#[test]
fn f21_a_load_that_fails_half_way_is_computed_instead() {
    for seed in 0..40 {
        let mut rig = rig(&tight(), |store| store.failing(seed, 2).late(2));
        for _ in 0..2 {
            for (length, tokens) in [(120, 5), (100, 9), (130, 2)] {
                let stream = rig.submit(&long(length), greedy(tokens));
                idle(&mut rig);
                assert_eq!(
                    Answer::of(stream).text,
                    letters(&long(length), tokens as usize)
                );
                let other = rig.submit(&format!("{length}{}", long(110)), greedy(2));
                idle(&mut rig);
                assert!(matches!(Answer::of(other).end, Event::Finished { .. }));
            }
        }
        rig.assert_empty();
    }
}

#[test]
fn an_engine_that_ends_takes_its_blocks_back_from_a_late_store() {
    let mut rig = rig(&tight(), FakeStore::stuck);
    rig.answer(&long(120), greedy(2));
    evict(&mut rig);
    let stream = rig.submit(&long(120), greedy(20));
    for _ in 0..3 {
        rig.step();
    }
    assert!(rig.engine.store.as_ref().is_some_and(Stores::is_late));
    rig.handle.shutdown(Shutdown::Now);
    assert!(matches!(rig.step(), Progress::Ended));
    assert_eq!(Answer::of(stream).end, Event::Failed(Failure::ShuttingDown));
    rig.assert_empty();
}

#[test]
fn what_prompts_without_a_pause_push_out_of_memory_was_saved_before() {
    let config = EngineConfig {
        max_queue: 40,
        max_stall_ms: 12,
        max_idle_step_ms: 12,
        prefill_chunk: 2048,
        ..tight()
    };
    let mut rig = rig_with(&config, (100, 50), |store| store);
    let prompts: Vec<String> = (10..40).map(|n| format!("{n}{}", long(118))).collect();
    let streams: Vec<EventStream> = prompts.iter().map(|p| rig.submit(p, greedy(2))).collect();
    // Somebody waits all the time: there is no step with nothing else to do.
    while streams.iter().any(|stream| stream.ring_len() < 2) {
        rig.step();
    }
    let stats = rig.engine.scheduler.stats();
    let unsaved = 30 * 7 - stats.saved_blocks;
    assert!(
        unsaved <= u64::from(stats.blocks.cached),
        "{unsaved}: {stats:?}"
    );
}

#[test]
fn what_is_loaded_ahead_is_waited_for_and_not_asked_for_all_the_time() {
    let mut rig = rig(&tight(), |store| store.late(1));
    evict(&mut rig);
    idle(&mut rig);
    // Some memory is free again after requests that leave nothing in it.
    let private = Sampling {
        cache_prompt: false,
        ..greedy(2)
    };
    let streams = [(); 2].map(|()| rig.submit(&long(158), private.clone()));
    idle(&mut rig);
    drop(streams);
    assert!(rig.engine.scheduler.stats().blocks.free >= 10);
    rig.engine.preload = Preload::new(&rig.engine.shared.spellings);
    let mut loads = 0;
    loop {
        match rig.step() {
            Progress::Waiting { until_us: Some(at) } => {
                let late = rig.engine.store.as_ref().is_some_and(Stores::is_late);
                loads += u32::from(late);
                assert!(!late || at > rig.clock.now_us(), "nothing to do before");
                rig.clock.advance(500);
            }
            Progress::Waiting { until_us: None } => break,
            Progress::Stepped => {}
            Progress::Ended => panic!("nobody asked for it"),
        }
    }
    assert!(loads > 0);
    assert!(rig.engine.scheduler.stats().loaded_tokens > 0);
}
