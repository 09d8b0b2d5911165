//! Known failures of other schedulers, each replayed in virtual time and held to a bound. The F-numbers name, where there
//! is one, the public report: F1, F2, F3 antirez/ds4 600 and 601, F4, F5 SGLang 32549 and 40443, F6 FreeToken 483, F7
//! mlxcel 1011, F9 omlx 3726, F10 vLLM 21495, F12 imp 1643, F13 llama.cpp 29175, F14 ds4 827, F16 vLLM fork 733, F18
//! llama.cpp 15008, F19 llama.cpp 24496, F20 ik_llama.cpp 1929, F21 vLLM 46283, F25 Layr 381, F26 ds4 1069 and 765, F27
//! llama.cpp 28139. F22 to F24 are the engine's, F28 is the probe's.

use super::super::Scheduler;
use super::world::{Arrival, Event, Machine, Ran, World, progresses};
use crate::config::{Config, Mode, Profile};
use crate::cost::{CostModel, IoCost, fixed, micros, nanos};
use crate::stats::StallLimit;
use crate::step::{Admission, IoKind, IoUnit, Plan, Priority, SeqId};

const MS: u64 = 1000;
const SECOND: u64 = 1000 * MS;

/// A dense 7B model on a data-centre GPU: mixing costs 1 ms.
fn dense() -> CostModel {
    CostModel {
        decode: micros(8_000),
        prefill: micros(8_000),
        mixed: micros(9_000),
        token: micros(110),
        attend: nanos(3),
        context: nanos(65),
        row: micros(20),
    }
}

/// A backend that cannot mix: 464 ms for every prompt range, 40 ms for every decode row.
fn slow_hand_off() -> CostModel {
    CostModel {
        decode: 0,
        prefill: micros(464_000),
        mixed: micros(464_000),
        token: micros(1620),
        attend: 0,
        context: 0,
        row: micros(40_000),
    }
}

fn mix() -> Config {
    Config {
        t_stall_us: 60 * MS,
        q_min: 32,
        q_max: 8192,
        cost: dense(),
        fixed_cost: true,
        ..Config::new(16, 20_000, 16)
    }
}

fn hand_off() -> Config {
    Config {
        mode: Mode::HandOff,
        t_stall_us: 700 * MS,
        t_idle_us: 4000 * MS,
        q_min: 128,
        prefill_share_permille: Some(500),
        cost: slow_hand_off(),
        ..mix()
    }
}

fn world(config: Config) -> World {
    let machine = Machine::exact(config.cost);
    World::new(config, machine)
}

fn is_prefilling(ran: &Ran, id: SeqId) -> bool {
    ran.step.prefill.iter().any(|range| range.id == id)
}

/// The steps while the prompt of `id` was being computed.
fn during_prefill(world: &World, id: SeqId) -> impl Iterator<Item = &Ran> + Clone {
    let (from, to) = (world.arrived[&id], world.tokens[&id][0]);
    world
        .log
        .iter()
        .filter(move |ran| ran.start_us >= from && ran.start_us < to)
}

#[test]
fn f1_a_decoder_gets_its_turn_after_every_prefill_turn() {
    for share in [None, Some(500)] {
        let tau = 3 * MS;
        let config = Config {
            prefill_share_permille: share,
            ..hand_off()
        };
        let mut world = World::new(
            config,
            Machine {
                tau_us: tau,
                ..Machine::exact(slow_hand_off())
            },
        );
        world.arrive(0, 0, 500, 200);
        world.arrive(3 * SECOND, 1, 5361, 8);
        world.run();
        world.check_log();
        assert!(
            during_prefill(&world, 1)
                .filter(|ran| !ran.step.decode.is_empty())
                .count()
                > 30,
            "they overlap"
        );
        assert!(
            world.max_gap(0) <= tau + 700 * MS + 80 * MS,
            "{}",
            world.max_gap(0)
        );
    }
}

#[test]
fn f2_a_finished_prompt_decodes_before_the_next_prompt_goes_on() {
    for (config, within) in [(mix(), 1), (hand_off(), 2)] {
        let mut world = world(config);
        world.arrive(0, 0, 20_000, 3);
        world.arrive(0, 1, 100, 3);
        world.run();
        let last = world
            .log
            .iter()
            .position(|ran| ran.step.prefill.iter().any(|r| r.id == 1 && r.last))
            .unwrap();
        let next = world
            .log
            .iter()
            .position(|ran| ran.step.decode.contains(&1))
            .unwrap();
        assert!(
            is_prefilling(&world.log[next + 2], 0),
            "the long prompt is still under way"
        );
        assert!(next - last <= within);
    }
}

/// 1 GiB comes from the store while two clients are being answered: in pieces, each planned for, none of which breaks the
/// bound, and the blocks that a computed prompt leaves behind are saved in time that is left.
#[test]
fn f3_loading_and_saving_keep_the_stall_bound() {
    for base in [mix(), hand_off()] {
        let stall = base.t_stall_us;
        let block = IoCost {
            unit: micros(500),
            block: micros(1_500),
        };
        let config = Config {
            save_blocks: u32::MAX,
            load_cost: block,
            save_cost: block,
            ..base
        };
        let machine = Machine {
            io: block,
            ..Machine::exact(config.cost)
        };
        let mut world = World::new(config, machine);
        world.arrive(0, 0, 100, 2000);
        world.arrive(0, 1, 3000, 2000);
        let stored = Arrival {
            id: 2,
            prompt: (0..16_384).collect(),
            answer: 4,
            cache: true,
            stored: 16_000,
            ..Arrival::default()
        };
        world.at(8 * SECOND, Event::Arrive(stored));
        world.run();
        world.check_log();
        let stats = world.scheduler.stats();
        assert_eq!((stats.loaded_tokens, stats.io_failures), (16_000, 0));
        // What it did not load it computed: 24 full blocks.
        assert_eq!(stats.saved_blocks, 24);
        let loads = world
            .log
            .iter()
            .filter(|ran| progresses(&ran.step) && ran.step.io.is_some());
        let contended: Vec<_> = loads.filter(|ran| ran.step.contended).collect();
        assert!(contended.len() > 5, "it was in pieces");
        for ran in &contended {
            assert!(ran.true_us <= stall || ran.step.floor_limited, "{ran:?}");
        }
        let between = match world.scheduler.config.mode {
            Mode::Mix => stall,
            Mode::HandOff => stall + 80 * MS,
        };
        let gaps = |id: SeqId| {
            let tokens = world.tokens[&id].windows(2);
            tokens
                .filter(|pair| pair[0] > 8 * SECOND)
                .map(|pair| pair[1] - pair[0])
                .max()
        };
        assert!(
            gaps(0) <= Some(between) && gaps(1) <= Some(between),
            "{:?}",
            (gaps(0), gaps(1))
        );
    }
}

/// 360 requests a minute of 3,000 to 6,000 tokens and long answers: more than the machine can do. The decoders run in every
/// step; what suffers is the wait for a first token.
#[test]
fn f4_overload_slows_first_tokens_and_not_answers() {
    let mut world = world(mix());
    for id in 0..180 {
        world.arrive(id * SECOND / 6, id, 3000 + (id as u32 * 997) % 3000, 100);
    }
    world.run();
    world.check_log();
    assert!((0..180).all(|id| world.max_gap(id) <= 60 * MS));
    let decode_steps = world.log.iter().filter(|ran| !ran.step.decode.is_empty());
    assert!(decode_steps.count() * 100 >= world.log.len() * 99);
    assert!(world.ttft(179) > 10 * SECOND, "it was too much");
}

/// Eight prompts of 256k tokens one after the other: with a share σ for prefill, a stream keeps at least 1 − σ of its speed.
#[test]
fn f5_a_stream_keeps_its_share_of_speed() {
    let config = Config {
        prefill_share_permille: Some(500),
        blocks: 200_000,
        ..mix()
    };
    let mut world = world(config);
    world.arrive(0, 0, 100, 4000);
    for id in 1..=8 {
        world.arrive(SECOND, id, 256_000, 2);
    }
    world.run_until(60 * SECOND);
    let tokens = world.tokens[&0].iter().filter(|&&at| at > SECOND).count() as u64;
    // Alone a step takes 8.1 ms.
    assert!(tokens >= 59 * SECOND / (2 * 8_200), "{tokens}");
    assert!(world.log.iter().filter(|ran| progresses(&ran.step)).count() > 100);
}

#[test]
fn f6_a_gap_is_at_most_one_step_under_a_200k_prompt() {
    let mut world = world(mix());
    world.arrive(0, 0, 699, 5000);
    world.arrive(6 * SECOND, 1, 200_019, 4);
    world.run();
    world.check_log();
    assert!(during_prefill(&world, 1).count() > 500);
    assert!(
        during_prefill(&world, 1).all(|ran| ran.step.decode == [0]),
        "they overlap"
    );
    assert!(world.max_gap(0) <= 60 * MS, "{}", world.max_gap(0));
}

#[test]
fn f7_prefill_progresses_in_every_step_beside_decoders() {
    let mut world = world(mix());
    for id in 0..4 {
        world.arrive(0, id, 100, 400);
    }
    world.arrive(SECOND, 9, 10_000, 4);
    world.run();
    assert!(
        during_prefill(&world, 9).all(|ran| is_prefilling(ran, 9) && ran.step.decode.len() == 4)
    );
    // Alone it takes 1.1 s and some.
    assert!(world.ttft(9) <= 1350 * 1200, "{}", world.ttft(9));
}

#[test]
fn f8_a_prompt_does_not_wait_for_decoders_to_end() {
    let mut world = world(hand_off());
    world.arrive(0, 0, 100, 1000);
    world.arrive(SECOND, 1, 9500, 4);
    world.run();
    world.check_log();
    let most = during_prefill(&world, 1).fold((0, 0), |(run, most), ran| {
        let run = if ran.step.prefill.is_empty() {
            run + 1
        } else {
            0
        };
        (run, most.max(run))
    });
    // K for these costs: a chunk of 700 ms is earned back by decode steps of 40 ms.
    assert!(most.1 <= 19, "{} decode turns in a row", most.1);
}

#[test]
fn f9_a_short_request_is_let_in_during_a_long_prefill() {
    let mut world = world(mix());
    world.arrive(0, 0, 100, 500);
    world.arrive(SECOND, 1, 16_000, 4);
    world.arrive(SECOND + 500 * MS, 2, 100, 4);
    world.run();
    assert!(world.tokens[&1][0] > world.tokens[&2][0]);
    assert!(
        world.steps_to_first_token(2) <= 2,
        "{}",
        world.steps_to_first_token(2)
    );
}

#[test]
fn f10_a_short_prompt_does_not_wait_for_a_long_one() {
    let mut world = world(mix());
    world.arrive(0, 0, 128_000, 4);
    world.arrive(SECOND, 1, 200, 4);
    world.run();
    assert!(world.tokens[&0][0] > 10 * world.tokens[&1][0]);
    assert!(
        world.steps_to_first_token(1) <= 3,
        "{}",
        world.steps_to_first_token(1)
    );
}

#[test]
fn f11_a_long_prompt_keeps_its_part_under_endless_short_ones() {
    let mut world = world(mix());
    world.arrive(0, 0, 100_000, 1);
    // 1.1 s of work a second, each longer than what fits a step.
    for i in 0..750 {
        world.arrive(i * 200 * MS, i + 1, 2000, 2);
    }
    world.run_until(150 * SECOND);
    let cost = dense();
    let mut shared = 0;
    for ran in during_prefill(&world, 0).filter(|ran| ran.step.prefill.len() > 1) {
        let all: i64 = ran
            .step
            .prefill
            .iter()
            .map(|range| cost.range(range.start, range.tokens))
            .sum();
        let range = ran
            .step
            .prefill
            .iter()
            .find(|range| range.id == 0)
            .expect("the oldest is in every step");
        // All but the token that did not fit.
        assert!(range.last || 4 * cost.range(range.start, range.tokens + 1) >= all);
        shared += 1;
    }
    assert!(shared > 100);
    // Alone it takes 26 s; a quarter of the time is its own, less what the decoders take.
    assert!(world.ttft(0) < 5 * 26 * SECOND, "{}", world.ttft(0));
}

#[test]
fn f12_the_budget_covers_all_prompts_of_a_step() {
    let mut world = world(mix());
    world.arrive(0, 0, 100, 1000);
    for id in 1..4 {
        world.arrive(SECOND, id, 5200, 4);
    }
    world.run();
    assert!(world.log.iter().any(|ran| ran.step.prefill.len() > 1));
    assert!(world.max_gap(0) <= 60 * MS);
}

#[test]
fn f13_the_first_contended_chunk_is_small_whatever_the_model_says() {
    for (num, den) in [(1, 10), (1, 1), (10, 1)] {
        let truth = dense();
        let guess = truth.scaled([1000 * num / den; 7]);
        let config = Config {
            cost: guess,
            fixed_cost: false,
            ..mix()
        };
        let mut world = World::new(config, Machine::exact(truth));
        world.arrive(0, 0, 20, 400);
        world.arrive(SECOND, 1, 8000, 4);
        world.run();
        let first = during_prefill(&world, 1).next().unwrap();
        assert!(first.step.contended && first.step.prefill[0].tokens <= 32);
        assert!(
            world.max_gap(0) <= 60 * MS * 11 / 10,
            "{num}/{den}: {}",
            world.max_gap(0)
        );
        // It does not stay small: 0.9 s of prefill, with 10 ms of decode in every 60.
        assert!(world.ttft(1) <= 1350 * MS, "{num}/{den}: {}", world.ttft(1));
    }
}

#[test]
fn f14_a_chunk_too_small_for_its_fixed_cost_is_said_so() {
    let config = Config {
        t_stall_us: 300 * MS,
        ..hand_off()
    };
    let mut small = world(config.clone());
    let mut efficient = world(Config {
        efficiency_permille: 500,
        ..config
    });
    for world in [&mut small, &mut efficient] {
        world.arrive(0, 0, 500, 2000);
        world.arrive(3 * SECOND, 1, 5361, 8);
        world.run();
    }
    let tokens = |world: &World| {
        let steps = during_prefill(world, 1)
            .filter(|ran| ran.step.contended && !ran.step.prefill.is_empty());
        assert!(steps.clone().all(|ran| ran.step.floor_limited));
        steps
            .filter(|ran| !ran.step.prefill[0].last)
            .map(|ran| ran.step.prefill[0].tokens)
            .collect::<Vec<_>>()
    };
    assert!(tokens(&small).iter().all(|&tokens| tokens == 128));
    // η = ½: as many tokens as cost the 464 ms of the range itself.
    assert!(
        tokens(&efficient)
            .iter()
            .all(|&tokens| tokens == 464_000 / 1620)
    );
    assert!(small.scheduler.stats().violations.floor > 30);
    assert_eq!(small.scheduler.stats().violations.model, 0);
}

#[test]
fn f15_no_chunk_is_chosen_for_an_idle_machine_and_run_on_a_busy_one() {
    let mut world = world(mix());
    world.arrive(0, 0, 30_000, 50);
    world.arrive(700 * MS, 1, 50, 500);
    world.arrive(900 * MS, 2, 3000, 50);
    world.run();
    assert!(
        world
            .log
            .iter()
            .any(|ran| !ran.step.contended && ran.true_us > 400 * MS)
    );
    for ran in &world.log {
        assert!(
            ran.true_us
                <= if ran.step.contended {
                    60 * MS
                } else {
                    500 * MS
                }
        );
        assert!(ran.step.contended || ran.step.decode.is_empty());
    }
    assert!(world.max_gap(1) <= 60 * MS);
}

#[test]
fn f16_full_memory_never_gives_an_empty_step() {
    let mut world = world(Config {
        blocks: 10,
        ..mix()
    });
    for id in 0..6 {
        world.arrive(0, id, 100, 40);
    }
    world.arrive(0, 6, 10, 10);
    world.run();
    world.check_log();
    assert_eq!(world.ended.len(), 7);
    assert!(world.log.len() <= 7 * 41);
}

#[test]
fn f17_what_one_prompt_cannot_use_goes_to_the_others() {
    let mut world = world(mix());
    world.arrive(0, 0, 300, 100);
    world.arrive(0, 1, 200, 100);
    world.arrive(0, 2, 20_000, 100);
    world.run();
    let first = &world.log[0];
    assert_eq!(first.step.prefill.len(), 3);
    let next_token = dense().range(
        first.step.prefill[2].start + first.step.prefill[2].tokens,
        1,
    );
    assert!(
        fixed((500 * MS - first.true_us) as i64) <= next_token + fixed(1),
        "{} µs used",
        first.true_us
    );
}

#[test]
fn f18_waiting_requests_keep_their_place() {
    let config = Config { slots: 1, ..mix() };
    let mut scheduler = super::super::Scheduler::new(config);
    let add = |scheduler: &mut super::super::Scheduler, id: SeqId, len: usize| {
        scheduler
            .add(Admission {
                cache: false,
                ..Admission::new(id, &vec![0; len], 1)
            })
            .unwrap();
    };
    // Three clients that come back at once, forever, and one long request behind them.
    for id in 0..3 {
        add(&mut scheduler, id, 10);
    }
    add(&mut scheduler, 100, 1000);
    let mut admitted = Vec::new();
    for id in 3..30 {
        let Plan::Step(step) = scheduler.plan(0) else {
            panic!("work is waiting")
        };
        let range = step.prefill[0];
        let no = step.step_no;
        admitted.push(range.id);
        scheduler
            .complete(no, 1, &[crate::step::Outcome::Token(0)])
            .unwrap();
        add(&mut scheduler, id, 10);
    }
    assert_eq!(admitted[..4], [0, 1, 2, 100]);
    assert!(
        admitted[4..].is_sorted(),
        "equal requests in order of arrival: {admitted:?}"
    );
}

#[test]
fn f19_a_client_that_leaves_is_gone_within_a_step() {
    let mut world = world(Config { slots: 3, ..mix() });
    world.arrive(0, 0, 50_000, 10);
    world.arrive(0, 1, 20, 2000);
    world.arrive(0, 2, 20, 2000);
    world.arrive(0, 3, 60_000, 2000);
    // In its prompt, decoding, parked, queued.
    world.at(1500 * MS, Event::Park(2));
    for (time, id) in [
        (SECOND, 3),
        (2 * SECOND, 0),
        (3 * SECOND, 1),
        (4 * SECOND, 2),
    ] {
        world.at(time, Event::Cancel(id));
    }
    world.run();
    let last_step = |id| {
        world
            .log
            .iter()
            .rfind(|r| r.step.decode.contains(&id) || is_prefilling(r, id))
    };
    for (time, id) in [(2 * SECOND, 0), (3 * SECOND, 1)] {
        assert!(last_step(id).unwrap().start_us <= time);
    }
    assert_eq!(last_step(3), None);
    assert!(last_step(2).unwrap().start_us <= 1500 * MS);
    assert_eq!(world.scheduler.stats().blocks.free, 20_000);
}

#[test]
fn f20_a_cancel_touches_only_its_own_sequence() {
    let run = |cancel: bool| {
        let mut world = world(Config { slots: 2, ..mix() });
        world.arrive(0, 0, 2000, 50);
        world.arrive(0, 1, 500, 50);
        world.arrive(MS, 2, 9000, 50);
        if cancel {
            world.at(2 * MS, Event::Cancel(2));
            // Unknown, and gone already.
            world.at(3 * MS, Event::Cancel(77));
            world.at(4 * MS, Event::Cancel(2));
        } else {
            world.at(2 * MS, Event::Cancel(77));
        }
        world.run();
        world
    };
    let (with, without) = (run(true), run(false));
    assert!(!with.tokens.contains_key(&2) && without.tokens.contains_key(&2));
    assert_eq!(with.tokens[&0], without.tokens[&0]);
    assert_eq!(with.tokens[&1], without.tokens[&1]);
}

/// The client of a prompt that is being loaded leaves, and the store is late: the blocks stay until it has answered, nothing
/// else is loaded in between, and then everything is free.
#[test]
fn f21_a_load_of_a_gone_client_keeps_its_blocks_until_it_ends() {
    let config = Config {
        load_cost: IoCost {
            unit: 0,
            block: micros(100),
        },
        ..mix()
    };
    let mut scheduler = Scheduler::new(config);
    let prompt: Vec<u32> = (0..1000).collect();
    let stored = |id| Admission {
        stored: 960,
        ..Admission::new(id, &prompt[id as usize..], 4)
    };
    scheduler.add(stored(0)).unwrap();
    let Plan::Step(step) = scheduler.plan(0) else {
        panic!("there is a prompt");
    };
    let (step_no, unit) = (step.step_no, step.io.clone().expect("it is loaded"));
    assert!(step.prefill.is_empty());
    scheduler.complete(step_no, 0, &[]).unwrap();
    assert!(scheduler.cancel(0));
    assert!(!scheduler.cancel(0), "it is gone already");
    scheduler.add(stored(1)).unwrap();
    for _ in 0..3 {
        assert_eq!(scheduler.plan(0), Plan::Idle, "one unit at a time");
        assert!(scheduler.stats().blocks.used > 0);
    }
    assert!(!scheduler.io_done(unit.unit_no + 1, 1, 1));
    assert!(scheduler.io_done(unit.unit_no, 0, 1));
    assert!(!scheduler.io_done(unit.unit_no, 0, 1));
    assert_eq!(
        (scheduler.stats().blocks.used, scheduler.stats().resident),
        (0, 1)
    );
    let Plan::Step(step) = scheduler.plan(0) else {
        panic!("the next one has its turn");
    };
    assert!(matches!(
        step.io,
        Some(IoUnit {
            kind: IoKind::Load { id: 1, .. },
            ..
        })
    ));
}

/// Whatever the estimate says, an idle machine takes what fits its memory.
#[test]
fn f25_nothing_is_refused_for_an_estimate() {
    let hopeless = CostModel {
        token: micros(1_000_000),
        ..dense()
    };
    let config = Config {
        cost: hopeless,
        fixed_cost: false,
        max_queue: 1000,
        ..mix()
    };
    let mut world = World::new(config, Machine::exact(dense()));
    for id in 0..1000 {
        world.arrive(id * 50 * MS, id, 500, 2);
    }
    world.run();
    assert!(world.refused.is_empty());
    assert_eq!(world.ended.len(), 1000);
}

/// A conversation, a side request that shares only its system prompt, and the conversation again: nothing of it is lost.
#[test]
fn f26_a_side_request_takes_nothing_from_a_conversation() {
    let config = Config {
        slots: 2,
        blocks: 1600,
        ..mix()
    };
    let mut world = world(config);
    let system = || 0..2000;
    let arrival = |id, prompt: Vec<u32>| {
        Event::Arrive(Arrival {
            id,
            prompt,
            answer: 10,
            cache: true,
            ..Arrival::default()
        })
    };
    let conversation: Vec<u32> = system().chain(100_000..110_000).collect();
    world.at(0, arrival(0, conversation.clone()));
    world.at(
        10 * SECOND,
        arrival(1, system().chain(200_000..200_500).collect()),
    );
    let more = conversation.iter().copied().chain(300_000..300_100);
    world.at(20 * SECOND, arrival(2, more.collect()));
    world.run();
    let computed = |id| -> u32 {
        let ranges = world.log.iter().flat_map(|ran| &ran.step.prefill);
        ranges
            .filter(|range| range.id == id)
            .map(|range| range.tokens)
            .sum()
    };
    assert_eq!((computed(0), computed(1), computed(2)), (12_000, 500, 100));
}

/// Whichever slot is free, the cache is asked.
#[test]
fn f27_every_slot_finds_the_cache() {
    let mut world = world(mix());
    let prompt: Vec<u32> = (0..1601).collect();
    for id in 0..40 {
        let arrival = Arrival {
            id,
            prompt: prompt.clone(),
            answer: 1 + id as u32 % 30,
            cache: true,
            ..Arrival::default()
        };
        world.at(id * 300 * MS, Event::Arrive(arrival));
    }
    world.run();
    let tokens: u32 = world
        .log
        .iter()
        .flat_map(|ran| &ran.step.prefill)
        .map(|r| r.tokens)
        .sum();
    assert_eq!(tokens, 1601 + 39);
}

/// Three equal tenants with more prompts than the machine can do, one with ten times as many: over every second in which all
/// have work waiting, Jain's index of their service is at least 0.95.
#[test]
fn a_tenant_with_ten_times_the_load_gets_a_third() {
    for config in [mix(), hand_off()] {
        let window = if config.mode == Mode::Mix {
            2 * SECOND
        } else {
            60 * SECOND
        };
        let end = 20 * window;
        let mut world = world(Config {
            max_queue: 10_000,
            ..config
        });
        let mut id = 0;
        for round in 0..end / (window / 4) {
            for (tenant, count) in [(1, 40), (2, 4), (3, 4)] {
                for _ in 0..count {
                    let arrival = Arrival {
                        id,
                        prompt: vec![id as u32; 1000 + (id as usize * 37) % 3000],
                        answer: 20 + (id as u32 * 13) % 30,
                        tenant,
                        ..Arrival::default()
                    };
                    world.at(round * window / 4, Event::Arrive(arrival));
                    id += 1;
                }
            }
        }
        let service = |world: &World| -> Vec<u64> {
            world.scheduler.tenants().map(|t| t.service_us).collect()
        };
        // A window to fill the slots.
        world.run_until(window);
        let mut before = service(&world);
        for k in 2..20 {
            world.run_until(k * window);
            assert!(
                world.scheduler.tenants().all(|tenant| tenant.queued > 0),
                "all wait"
            );
            let now = service(&world);
            let spent: Vec<f64> = now
                .iter()
                .zip(&before)
                .map(|(a, b)| (a - b) as f64)
                .collect();
            let sum: f64 = spent.iter().sum();
            let jain = sum * sum / (3.0 * spent.iter().map(|x| x * x).sum::<f64>());
            assert!(jain >= 0.95, "{jain}: {spent:?}");
            before = now;
        }
    }
}

/// A low priority gets its quarter of a normal one's service, and is not starved.
#[test]
fn priorities_are_weights() {
    let mut world = world(Config {
        max_queue: 10_000,
        slots: 4,
        ..mix()
    });
    for id in 0..600 {
        let arrival = Arrival {
            id,
            prompt: vec![id as u32; 2000],
            answer: 2,
            priority: Priority::ALL[id as usize % 3],
            ..Arrival::default()
        };
        world.at(0, Event::Arrive(arrival));
    }
    world.run_until(30 * SECOND);
    let done = |priority: u64| world.ended.keys().filter(|&&id| id % 3 == priority).count() as f64;
    let (low, normal, high) = (done(0), done(1), done(2));
    assert!(low >= 4.0, "{low}");
    assert!((normal / low - 4.0).abs() < 1.5, "{normal} to {low}");
    assert!((high / normal - 4.0).abs() < 1.5, "{high} to {normal}");
}

/// On a machine with slow decode steps the bound follows them, when it may; else it is said what can be kept, and why.
#[test]
fn a_bound_that_cannot_be_kept_is_said_or_follows() {
    let slow = CostModel {
        decode: micros(120_000),
        prefill: micros(120_000),
        mixed: micros(121_000),
        ..dense()
    };
    let config = |stall_auto| Config {
        t_stall_us: 100 * MS,
        stall_auto,
        cost: slow,
        fixed_cost: false,
        ..mix()
    };
    let run = |config: Config| {
        let mut world = World::new(config, Machine::exact(slow));
        world.arrive(0, 0, 100, 200);
        world.arrive(0, 1, 100, 200);
        world.arrive(5 * SECOND, 2, 20_000, 4);
        world.run();
        world.scheduler.stats()
    };
    let asked = run(config(false));
    assert_eq!(asked.stall_us, 100 * MS);
    let (kept, limit) = asked.stall_kept.expect("100 ms are too few");
    assert!((120 * MS..200 * MS).contains(&kept), "{kept}");
    assert_eq!(limit, StallLimit::Floor);
    let auto = run(config(true));
    assert!(
        (470 * MS..500 * MS).contains(&auto.stall_us),
        "{}",
        auto.stall_us
    );
    assert_eq!(auto.stall_kept, None);
    let mut alone = World::new(config(false), Machine::exact(slow));
    alone.arrive(0, 0, 100, 200);
    alone.run();
    assert!(matches!(
        alone.scheduler.stats().stall_kept,
        Some((_, StallLimit::Decode))
    ));
}

/// `Strict` breaks no bound that single tokens can keep, whatever they cost together; `Batch` has none.
#[test]
fn profiles_say_which_promise_yields() {
    let run = |profile| {
        let config = Config {
            efficiency_permille: 500,
            ..mix()
        };
        let machine = Machine::exact(CostModel {
            mixed: micros(50_000),
            ..dense()
        });
        let config = Config {
            cost: machine.cost,
            ..config
        }
        .with_profile(profile);
        let mut world = World::new(config, machine);
        world.arrive(0, 0, 100, 400);
        world.arrive(SECOND, 1, 30_000, 4);
        world.run();
        (world.max_gap(0), world.ttft(1))
    };
    let [interactive, batch, strict] =
        [Profile::Interactive, Profile::Batch, Profile::Strict].map(run);
    assert!(
        strict.0 <= 60 * MS && interactive.0 > 60 * MS,
        "{strict:?} {interactive:?}"
    );
    assert!(batch.0 > 500 * MS && batch.1 < interactive.1 && interactive.1 < strict.1);
}

/// A small model on two CPU cores, started with the default guess of costs and measured with noise: two clients stream, a
/// prompt of 5,000 tokens comes, then one of 60.
#[test]
fn nobody_suffers_from_a_long_prompt_on_a_small_machine() {
    let cpu = CostModel {
        decode: micros(9_000),
        prefill: micros(14_000),
        mixed: micros(12_000),
        token: micros(900),
        attend: nanos(60),
        context: nanos(300),
        row: micros(1_500),
    };
    for seed in 1..20 {
        let config = Config {
            t_stall_us: 100 * MS,
            ..Config::new(8, 20_000, 16)
        };
        let machine = Machine {
            noise_permille: 150,
            seed,
            ..Machine::exact(cpu)
        };
        let mut alone = World::new(config.clone(), machine.clone());
        alone.arrive(0, 2, 5000, 4);
        alone.run();
        let mut world = World::new(config, machine);
        world.arrive(0, 0, 100, 1500);
        world.arrive(0, 1, 100, 1500);
        world.arrive(3 * SECOND, 2, 5000, 4);
        world.arrive(5 * SECOND, 3, 60, 4);
        world.run();
        assert!(
            during_prefill(&world, 2).all(|ran| ran.step.decode.len() >= 2),
            "they overlap"
        );
        for id in [0, 1] {
            assert!(
                world.max_gap(id) <= 112 * MS,
                "seed {seed}: {}",
                world.max_gap(id)
            );
        }
        assert!(
            world.steps_to_first_token(3) <= 6,
            "seed {seed}: {}",
            world.steps_to_first_token(3)
        );
        let slowdown = world.ttft(2) * 100 / alone.ttft(2);
        assert!(slowdown <= 135, "seed {seed}: {slowdown} %");
    }
}

/// Four decoders, a prompt of 100,000 tokens and two of 200 behind it.
#[test]
fn a_huge_prompt_hardly_loses_and_hardly_disturbs() {
    let mut alone = world(mix());
    alone.arrive(0, 10, 100_000, 4);
    alone.run();
    let mut world = world(mix());
    for id in 0..4 {
        world.arrive(0, id, 500, 1500);
    }
    world.arrive(2 * SECOND, 10, 100_000, 4);
    world.arrive(2500 * MS, 11, 200, 50);
    world.arrive(4 * SECOND, 12, 200, 50);
    world.run();
    world.check_log();
    assert!(
        during_prefill(&world, 10).all(|ran| ran.step.decode.len() >= 4),
        "they overlap"
    );
    assert!((0..4).all(|id| world.max_gap(id) <= 60 * MS));
    assert!(
        [11, 12]
            .iter()
            .all(|&id| world.steps_to_first_token(id) <= 5)
    );
    let slowdown = world.ttft(10) * 100 / alone.ttft(10);
    assert!(slowdown <= 135, "{slowdown} %");
}
