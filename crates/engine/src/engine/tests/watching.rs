//! What watchers see: the timeline, and how far a prompt has come.

use super::*;
use crate::progress::PromptProgress;
use crate::timeline::{Ending, Moment};

fn moments(rig: &Rig) -> Vec<Moment> {
    let mut moments = Vec::new();
    assert!(!rig.handle.timeline().read(&mut moments));
    moments
}

fn endings(moments: &[Moment]) -> Vec<(u64, Ending, u32)> {
    let ending = |moment: &Moment| match *moment {
        Moment::Ended {
            id, how, tokens, ..
        } => Some((id, how, tokens)),
        _ => None,
    };
    moments.iter().filter_map(ending).collect()
}

#[test]
fn the_steps_of_the_timeline_are_those_that_were_made() {
    let mut rig = Rig::small();
    rig.answer("A", greedy(3));
    let steps: Vec<StepRecord> = moments(&rig)
        .into_iter()
        .filter_map(|moment| match moment {
            Moment::Step(step) => Some(step.record),
            _ => None,
        })
        .collect();
    let status = rig.handle.status();
    assert_eq!(steps.len(), 3);
    assert!(status.recent.iter().map(|step| &**step).eq(&steps));
}

#[test]
fn however_a_request_ends_the_timeline_says_so() {
    let mut rig = Rig::small();
    rig.answer("A", greedy(2));
    let left = rig.submit("B", greedy(100));
    rig.step();
    drop(left);
    rig.settle();
    let failing = rig.submit("C", greedy(100));
    rig.handle.shutdown(crate::Shutdown::Now);
    while !matches!(rig.step(), Progress::Ended) {}
    drop(failing);
    let moments = moments(&rig);
    let ended = endings(&moments);
    assert_eq!(ended[0], (1, Ending::Length, 2));
    assert_eq!((ended[1].0, ended[1].1), (2, Ending::Cancelled));
    let arrived = moments
        .iter()
        .filter(|moment| matches!(moment, Moment::Arrived { .. }))
        .count();
    assert_eq!(arrived, ended.len());
}

#[test]
fn a_reader_that_stops_is_seen_to_park() {
    let config = EngineConfig {
        ring_events: 4,
        ..small()
    };
    let mut rig = Rig::new(FakeModel::new(VOCAB), &config);
    let mut stream = rig.submit("A", greedy(10));
    rig.settle();
    while stream.try_recv().is_some() {}
    rig.settle();
    let kinds: Vec<&str> = moments(&rig)
        .iter()
        .filter_map(|moment| match moment {
            Moment::Parked { .. } => Some("parked"),
            Moment::Unparked { .. } => Some("unparked"),
            _ => None,
        })
        .collect();
    assert_eq!(kinds[..2], ["parked", "unparked"]);
}

/// What a reader finds who looks after every `every`-th step.
fn progress(asks: bool, every: usize) -> Vec<PromptProgress> {
    let config = EngineConfig {
        prefill_chunk: 8,
        min_prefill_chunk: 8,
        ..small()
    };
    let mut rig = Rig::new(FakeModel::new(VOCAB), &config);
    let request = rig.request(&"A".repeat(60), greedy(2)).with_progress(asks);
    let mut stream = rig.handle.submit(request).expect("room");
    let mut seen = Vec::new();
    let mut step = 0;
    while !stream.is_done() {
        rig.step();
        step += 1;
        if step % every > 0 {
            continue;
        }
        while let Some(event) = stream.try_recv() {
            if let Event::Progress(progress) = event {
                seen.push(progress);
            }
        }
    }
    seen
}

#[test]
fn whoever_asks_hears_after_every_part_of_the_prompt() {
    let told: Vec<u32> = progress(true, 1)
        .iter()
        .map(|progress| progress.processed_tokens)
        .collect();
    assert_eq!(told, [8, 16, 24, 32, 40, 48, 56]);
    assert!(progress(false, 1).is_empty());
}

#[test]
fn whoever_reads_late_hears_of_the_latest_alone() {
    let told: Vec<u32> = progress(true, 3)
        .iter()
        .map(|progress| progress.processed_tokens)
        .collect();
    assert_eq!(told, [24, 48, 56]);
}
