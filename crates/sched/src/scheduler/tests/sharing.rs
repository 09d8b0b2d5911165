//! The prefix cache as clients see it: what is found, what is computed, and by whom.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::Scheduler;
use super::world::{Arrival, Event, Machine, World};
use crate::config::Config;
use crate::cost::{CostModel, IoCost, micros};
use crate::stats::Missed;
use crate::step::{Admission, IoKind, Outcome, Plan, SeqId};

const COST: CostModel = CostModel {
    decode: micros(10),
    prefill: micros(10),
    mixed: micros(12),
    token: micros(1),
    attend: 0,
    context: 0,
    row: micros(1),
};

fn config(blocks: u32) -> Config {
    let base = Config::new(8, blocks, 4);
    Config {
        t_stall_us: 40,
        t_idle_us: 60,
        q_min: 2,
        cost: COST,
        fixed_cost: true,
        ..base
    }
}

fn world(blocks: u32) -> World {
    World::new(config(blocks), Machine::exact(COST)).with_kv()
}

/// Runs one request alone; gives its tokens and how many were found.
fn serve(
    scheduler: &mut Scheduler,
    id: SeqId,
    prompt: &[u32],
    answer: u32,
    cache: bool,
) -> (Vec<u32>, u32) {
    scheduler
        .add(Admission {
            cache,
            ..Admission::new(id, prompt, answer)
        })
        .unwrap();
    let mut found = 0;
    let mut tokens = prompt.to_vec();
    while let Plan::Step(step) = scheduler.plan(0) {
        let no = step.step_no;
        let samples = !step.decode.is_empty() || step.prefill[0].last;
        found = scheduler.cached_tokens(id).unwrap();
        let token = (tokens.len() % 3) as u32;
        let outcome = if samples {
            Outcome::Token(token)
        } else {
            Outcome::Prefilled
        };
        tokens.extend(samples.then_some(token));
        scheduler.complete(no, 1, &[outcome]).unwrap();
    }
    (tokens, found)
}

#[derive(Debug, Clone)]
struct Request {
    /// Continues an earlier request's tokens (prompt and answer), cut to a part of them.
    continues: Option<(prop::sample::Index, prop::sample::Index)>,
    own: Vec<u32>,
    answer: u32,
    cache: bool,
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let continues = prop::option::weighted(
        0.7,
        (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    );
    let own = prop::collection::vec(0..3u32, 1..20);
    let request = (continues, own, 1..12u32, prop::bool::weighted(0.8)).prop_map(
        |(continues, own, answer, cache)| Request {
            continues,
            own,
            answer,
            cache,
        },
    );
    prop::collection::vec(request, 1..20)
}

proptest! {
    /// Against dictionaries of all block-long prefixes that were computed, and of how the last block of each sequence ended:
    /// with room for everything all of it is found, with little room nothing else.
    #[test]
    fn what_is_found_is_what_was_computed(requests in requests()) {
        let mut roomy = Scheduler::new(config(2000));
        let mut tight = Scheduler::new(config(30));
        let mut known: BTreeSet<Vec<u32>> = BTreeSet::new();
        let mut tails: BTreeSet<Vec<u32>> = BTreeSet::new();
        let mut history: Vec<Vec<u32>> = vec![Vec::new()];
        for (request, id) in requests.iter().zip(0..) {
            let mut prompt = request.continues.map_or_else(Vec::new, |(which, cut)| {
                let before = &history[which.index(history.len())];
                before[..cut.index(before.len() + 1).min(80)].to_vec()
            });
            prompt.extend(&request.own);
            let known_blocks = (1..=(prompt.len() - 1) / 4).take_while(|k| known.contains(&prompt[..4 * k])).count();
            let ends = (1..4).rev().map(|count| 4 * known_blocks + count);
            let mut ends = ends.filter(|&end| end <= prompt.len() && 4 * known_blocks + 1 < prompt.len());
            let tail = ends.find(|&end| tails.contains(&prompt[..end]));
            let expected = match (request.cache, tail) {
                (false, _) => 0,
                (true, Some(end)) => end.min(prompt.len() - 1) as u32,
                (true, None) => 4 * known_blocks as u32,
            };
            let (tokens, found) = serve(&mut roomy, id, &prompt, request.answer, request.cache);
            prop_assert_eq!(found, expected);
            let (same, found) = serve(&mut tight, id, &prompt, request.answer, request.cache);
            // Where it has forgotten what goes on from a last block, it may still have that.
            prop_assert!(found < 4 * (known_blocks as u32 + 1));
            prop_assert_eq!(&same, &tokens);
            tight.check_blocks();
            if request.cache {
                // Whoever goes on from there writes behind it.
                tails.remove(&prompt[..tail.unwrap_or(0)]);
                if !(tokens.len() - 1).is_multiple_of(4) {
                    tails.insert(tokens[..tokens.len() - 1].to_vec());
                }
                // The last token is never computed.
                known.extend((1..=(tokens.len() - 1) / 4).map(|k| tokens[..4 * k].to_vec()));
            }
            history.push(tokens);
        }
    }
}

#[test]
fn equal_prompts_at_once_are_computed_once() {
    let mut world = world(400);
    let prompt: Vec<u32> = (0..101).collect();
    for id in 0..5 {
        world.at(
            0,
            Event::Arrive(Arrival {
                id,
                prompt: prompt.clone(),
                answer: 3,
                cache: true,
                ..Arrival::default()
            }),
        );
    }
    world.run();
    world.check_log();
    let stats = world.scheduler.stats();
    // The whole prompt once, its last token (which no block boundary lets the others share) by everyone.
    assert_eq!(
        (stats.prefill_tokens, stats.cached_tokens),
        (101 + 4, 4 * 100)
    );
}

#[test]
fn a_follower_goes_on_when_its_leader_leaves() {
    let mut world = world(400);
    let prompt: Vec<u32> = (0..201).collect();
    for id in 0..2 {
        world.at(
            0,
            Event::Arrive(Arrival {
                id,
                prompt: prompt.clone(),
                answer: 3,
                cache: true,
                ..Arrival::default()
            }),
        );
    }
    world.at(100, Event::Cancel(0));
    world.run();
    assert_eq!(world.tokens[&1].len(), 3);
    let stats = world.scheduler.stats();
    assert!(
        stats.cached_tokens >= 40 && stats.prefill_tokens <= 205,
        "{stats:?}"
    );
}

#[test]
fn a_short_prompt_lends_its_rank_to_the_one_it_waits_for() {
    let mut world = world(1000);
    // The oldest has nothing to do with the others.
    world.at(
        0,
        Event::Arrive(Arrival {
            id: 9,
            prompt: vec![7; 900],
            answer: 2,
            cache: false,
            ..Arrival::default()
        }),
    );
    let long: Vec<u32> = (0..800).collect();
    world.at(
        0,
        Event::Arrive(Arrival {
            id: 0,
            prompt: long.clone(),
            answer: 2,
            cache: true,
            ..Arrival::default()
        }),
    );
    world.at(
        0,
        Event::Arrive(Arrival {
            id: 1,
            prompt: long[..41].to_vec(),
            answer: 2,
            cache: true,
            ..Arrival::default()
        }),
    );
    world.run();
    assert!(
        world.steps_to_first_token(1) <= 3,
        "{}",
        world.steps_to_first_token(1)
    );
    assert!(world.tokens[&1][0] < world.tokens[&9][0]);
}

#[test]
fn what_does_not_use_the_cache_neither_finds_nor_leaves_anything() {
    let mut scheduler = Scheduler::new(config(100));
    let prompt: Vec<u32> = (0..50).collect();
    assert_eq!(serve(&mut scheduler, 0, &prompt, 3, false).1, 0);
    assert_eq!(scheduler.stats().blocks.cached, 0);
    assert_eq!(serve(&mut scheduler, 1, &prompt, 3, true).1, 0);
    assert_eq!(serve(&mut scheduler, 2, &prompt, 3, false).1, 0);
    assert_eq!(serve(&mut scheduler, 3, &prompt, 3, true).1, 48);
}

#[test]
fn a_cancelled_prompt_leaves_what_it_has_computed() {
    let mut world = world(400);
    let prompt: Vec<u32> = (0..200).collect();
    world.at(
        0,
        Event::Arrive(Arrival {
            id: 0,
            prompt: prompt.clone(),
            answer: 3,
            cache: true,
            ..Arrival::default()
        }),
    );
    world.at(130, Event::Cancel(0));
    world.at(
        500,
        Event::Arrive(Arrival {
            id: 1,
            prompt,
            answer: 3,
            cache: true,
            ..Arrival::default()
        }),
    );
    world.run();
    // Three steps of 50 tokens, the third one in flight when the cancel came.
    assert_eq!(world.scheduler.stats().cached_tokens, 150);
}

#[test]
fn a_failed_row_leaves_nothing_of_its_step() {
    let mut world = world(400);
    let prompt: Vec<u32> = (0..200).collect();
    world.at(
        0,
        Event::Arrive(Arrival {
            id: 0,
            prompt: prompt.clone(),
            answer: 3,
            cache: true,
            ..Arrival::default()
        }),
    );
    world.at(70, Event::Fail(0));
    world.at(
        500,
        Event::Arrive(Arrival {
            id: 1,
            prompt,
            answer: 3,
            cache: true,
            ..Arrival::default()
        }),
    );
    world.run();
    assert_eq!(world.scheduler.stats().failed, 1);
    assert_eq!(world.scheduler.stats().cached_tokens, 100);
}

#[test]
fn what_is_salted_is_found_under_the_same_salt_only() {
    let mut scheduler = Scheduler::new(config(100));
    let prompt: Vec<u32> = (0..40).collect();
    let mut found = |id, salt| {
        let admission = Admission {
            salt,
            ..Admission::new(id, &prompt, 1)
        };
        scheduler.add(admission).unwrap();
        while let Plan::Step(step) = scheduler.plan(0) {
            let (no, last) = (step.step_no, step.prefill[0].last);
            let outcome = if last {
                Outcome::Finish
            } else {
                Outcome::Prefilled
            };
            let found = scheduler.cached_tokens(id).unwrap();
            scheduler.complete(no, 1, &[outcome]).unwrap();
            if last {
                return found;
            }
        }
        unreachable!("a prompt has an end");
    };
    let salts = [0, 7, 7, 0, 8, 7, u64::MAX];
    let cached: Vec<u32> = (0..).zip(salts).map(|(id, salt)| found(id, salt)).collect();
    assert_eq!(cached, [0, 0, 36, 36, 0, 36, 0]);
    for salt in salts {
        let holds = |&block: &u32| {
            scheduler.block_content(block).is_some() && scheduler.block_salt(block) == salt
        };
        assert_eq!((0..100).filter(holds).count(), 10, "{salt}");
    }
}

#[test]
fn what_is_brought_into_memory_is_found_and_says_nothing() {
    let load_cost = IoCost {
        unit: micros(1),
        block: micros(1),
    };
    // How many of five blocks come, and how many tokens follow them.
    for (came, more) in [(5, 0), (5, 3), (3, 0), (3, 3), (0, 2)] {
        let mut scheduler = Scheduler::new(Config {
            load_cost,
            ..config(100)
        });
        let prompt: Vec<u32> = (0..20 + more + 1).collect();
        let ahead = Admission {
            stored: 20,
            warm: true,
            ..Admission::new(1, &prompt, 1)
        };
        scheduler.add(ahead).unwrap();
        while let Plan::Step(step) = scheduler.plan(0) {
            assert!(step.decode.is_empty());
            let (no, io) = (step.step_no, step.io.clone());
            let outcomes = vec![Outcome::Prefilled; step.prefill.len()];
            assert!(step.prefill.iter().all(|part| !part.last));
            if let Some(io) = io {
                let IoKind::Load { blocks, .. } = io.kind else {
                    panic!("nothing is saved");
                };
                scheduler.io_done(io.unit_no, blocks.min(came), 1);
            }
            scheduler.complete(no, 1, &outcomes).unwrap();
        }
        assert!(scheduler.tokens(1).is_none(), "it has ended");
        let stats = scheduler.stats();
        let computed = if came == 5 { more } else { 0 };
        assert_eq!(stats.prefill_tokens, u64::from(computed));
        assert_eq!(stats.blocks.used, 0);
        scheduler.check_blocks();
        let (_, found) = serve(&mut scheduler, 2, &prompt, 1, true);
        assert_eq!(found, 4 * came + computed, "{came} and {more}");
    }
}

#[test]
fn what_is_not_found_is_counted_with_the_reason() {
    let mut scheduler = Scheduler::new(config(30));
    let prompt: Vec<u32> = (0..20).collect();
    let missed = |scheduler: &Scheduler| scheduler.stats().missed;
    serve(&mut scheduler, 1, &prompt, 1, true);
    let mut expected = Missed {
        new: 16,
        tail: 4,
        ..Missed::default()
    };
    assert_eq!(missed(&scheduler), expected);
    serve(&mut scheduler, 2, &prompt, 1, true);
    expected.tail += 4;
    assert_eq!(missed(&scheduler), expected);
    serve(&mut scheduler, 3, &prompt, 1, false);
    expected.off += 20;
    assert_eq!(missed(&scheduler), expected);
    // 28 blocks: three of the five that the first prompt has left make room.
    let other: Vec<u32> = (1000..1112).collect();
    serve(&mut scheduler, 4, &other, 1, true);
    expected.new += 108;
    expected.tail += 4;
    assert_eq!(missed(&scheduler), expected);
    let (_, found) = serve(&mut scheduler, 5, &prompt, 1, true);
    assert_eq!(found, 8);
    expected.evicted += 8;
    expected.tail += 4;
    assert_eq!(missed(&scheduler), expected);
}

#[test]
fn the_time_of_a_step_is_divided_between_prompts_and_answers() {
    let mut scheduler = Scheduler::new(config(30));
    scheduler.add(Admission::new(1, &[1], 20)).unwrap();
    let Plan::Step(step) = scheduler.plan(0) else {
        panic!("there is a prompt");
    };
    let no = step.step_no;
    scheduler.complete(no, 11, &[Outcome::Token(1)]).unwrap();
    let times = scheduler.stats().times;
    assert_eq!((times.prefill_us, times.decode_us), (11, 0));
    assert_eq!(times.contended_us, 0, "nobody waited for it");
    scheduler.add(Admission::new(2, &[2; 9], 1)).unwrap();
    let Plan::Step(step) = scheduler.plan(20) else {
        panic!("there are a row and a prompt");
    };
    let (no, tokens) = (step.step_no, u64::from(step.prefill[0].tokens));
    assert_eq!(step.decode, [1]);
    let outcome = if step.prefill[0].last {
        Outcome::Token(1)
    } else {
        Outcome::Prefilled
    };
    // As the costs are: 10 and 1 for the row, 2 for mixing and 1 for each token of the prompt.
    let whole = 13 + tokens;
    let outcomes = [Outcome::Token(1), outcome];
    scheduler.complete(no, whole, &outcomes).unwrap();
    let after = scheduler.stats().times;
    assert_eq!(after.prefill_us - times.prefill_us, 2 + tokens);
    assert_eq!(after.decode_us, 11);
    assert_eq!(after.contended_us, whole);
    assert_eq!(after.contended_prefill_us, 2 + tokens);
}
