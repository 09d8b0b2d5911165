//! Logs are read as they were written, replayed as they ran, and survive damage.

use proptest::prelude::*;

use super::*;
use crate::config::Mode;
use crate::cost::{CostModel, IoCost, micros, nanos};
use crate::step::{IoKind, IoUnit, Prefill, Priority, StateCopy, StateMoves};

/// One call of a driver that does not care whether it makes sense.
#[derive(Debug, Clone)]
enum Call {
    Add {
        text: u32,
        len: u32,
        max_new: u32,
        stored: u32,
        tenant: u64,
        priority: Priority,
    },
    Cancel(u64),
    Park(u64),
    Unpark(u64),
    Busy(u64),
    Ready(u64),
    Sampled(u64, u32),
    /// Plan and complete, with this time in permille of the predicted one.
    Step {
        permille: u64,
        sampling: bool,
        failing: bool,
    },
    /// Complete a step that is not in flight.
    Stale,
}

fn call() -> impl Strategy<Value = Call> {
    let id = || 0..24u64;
    prop_oneof![
        3 => (0..4u32, 1..60u32, 1..8u32, 0..40u32, 0..3u64, 0..3usize).prop_map(
            |(text, len, max_new, stored, tenant, priority)| Call::Add {
                text, len, max_new, stored, tenant, priority: Priority::ALL[priority],
            }
        ),
        1 => id().prop_map(Call::Cancel),
        1 => id().prop_map(Call::Park),
        1 => id().prop_map(Call::Unpark),
        1 => id().prop_map(Call::Busy),
        1 => id().prop_map(Call::Ready),
        2 => (id(), 0..1000u32).prop_map(|(id, token)| Call::Sampled(id, token)),
        12 => (200..4000u64, prop::bool::weighted(0.2), prop::bool::weighted(0.05)).prop_map(
            |(permille, sampling, failing)| Call::Step { permille, sampling, failing }
        ),
        1 => Just(Call::Stale),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    (
        1..5u32,
        20..80u32,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        prop::option::of(100..900u32),
    )
        .prop_map(|(slots, blocks, mix, save, fixed_cost, share)| Config {
            max_queue: 6,
            t_stall_us: 20_000,
            wait_us: 50,
            prefill_share_permille: share,
            mode: if mix { Mode::Mix } else { Mode::HandOff },
            tenant_weights: [(1, 2000)].into(),
            save_blocks: if save { 7 } else { 0 },
            fixed_cost,
            ..Config::new(slots, blocks, 4)
        })
}

/// Makes the calls on a recorded scheduler; the log comes in pieces.
fn run(config: Config, calls: &[Call]) -> Vec<u8> {
    let mut scheduler = Scheduler::new(config);
    scheduler.record(true);
    let mut log = Vec::new();
    let (mut now_us, mut next) = (1_000_000, 0);
    for call in calls {
        match *call {
            Call::Add {
                text,
                len,
                max_new,
                stored,
                tenant,
                priority,
            } => {
                let prompt = vec![text; len as usize];
                let request = Admission {
                    tenant,
                    priority,
                    stored,
                    salt: tenant,
                    warm: max_new == 7,
                    ..Admission::new(next, &prompt, max_new)
                };
                next += u64::from(scheduler.add(request).is_ok());
            }
            Call::Cancel(id) => drop(scheduler.cancel(id)),
            Call::Park(id) => drop(scheduler.park(id)),
            Call::Unpark(id) => drop(scheduler.unpark(id)),
            Call::Busy(id) => drop(scheduler.busy(id)),
            Call::Ready(id) => drop(scheduler.ready(id)),
            Call::Sampled(id, token) => drop(scheduler.sampled(id, Outcome::Token(token))),
            Call::Step {
                permille,
                sampling,
                failing,
            } => {
                now_us += step(&mut scheduler, now_us, permille, sampling, failing);
                scheduler.take_log(&mut log);
            }
            Call::Stale => assert!(scheduler.complete(u64::MAX, 1, &[]).is_err()),
        }
    }
    scheduler.take_log(&mut log);
    log
}

fn step(
    scheduler: &mut Scheduler,
    now_us: u64,
    permille: u64,
    sampling: bool,
    failing: bool,
) -> u64 {
    let Plan::Step(step) = scheduler.plan(now_us) else {
        return 100;
    };
    let step = step.clone();
    if let Some(unit) = &step.io {
        let blocks = match &unit.kind {
            IoKind::Load { blocks, .. } => *blocks,
            IoKind::Save { blocks } => blocks.len() as u32,
        };
        scheduler.io_done(unit.unit_no, blocks - u32::from(failing), permille);
    }
    let token = if failing {
        Outcome::Failed
    } else if sampling {
        Outcome::Sampling
    } else {
        Outcome::Token(7)
    };
    let ranges = step.prefill.iter().map(|range| {
        if range.last {
            token
        } else {
            Outcome::Prefilled
        }
    });
    let outcomes: Vec<Outcome> = step.decode.iter().map(|_| token).chain(ranges).collect();
    let elapsed_us =
        ((step.predicted_us / 1000).saturating_mul(permille) + permille).min(MAX_ELAPSED_US);
    scheduler
        .complete(step.step_no, elapsed_us, &outcomes)
        .unwrap();
    elapsed_us
}

proptest! {
    #[test]
    fn a_run_is_replayed_bit_for_bit(config in config(), calls in prop::collection::vec(call(), 1..200)) {
        let log = run(config, &calls);
        let replayed = replay(&log, |_, _| {}).unwrap();
        prop_assert_eq!(replayed.cut_bytes, 0);
        let steps = calls.iter().filter(|call| matches!(call, Call::Step { .. })).count();
        prop_assert_eq!(replayed.plans, steps as u64);
    }

    #[test]
    fn a_cut_log_is_replayed_as_far_as_it_is_whole(
        config in config(),
        calls in prop::collection::vec(call(), 1..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let log = run(config, &calls);
        let whole = replay(&log, |_, _| {}).unwrap();
        let cut = cut.index(log.len());
        match replay(&log[..cut], |_, _| {}) {
            Ok(part) => {
                prop_assert!(part.entries <= whole.entries && part.plans <= whole.plans);
                prop_assert!(part.cut_bytes <= cut);
            }
            Err(error) => prop_assert!(matches!(error, LogError::NotALog | LogError::NoHead), "{error}"),
        }
    }

    #[test]
    fn a_damaged_log_is_never_taken_for_a_whole_one(
        config in config(),
        calls in prop::collection::vec(call(), 1..60),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let mut log = run(config, &calls);
        let whole = replay(&log, |_, _| {}).unwrap();
        let at = at.index(log.len());
        log[at] ^= flip;
        // Behind the last check damage can look like another call.
        if let Ok(replayed) = replay(&log, |_, _| {}) && replayed.plans == whole.plans {
            let (mut reader, _) = Reader::new(&log).unwrap();
            let mut verified = reader.input.offset();
            while let Ok(is_plan) = reader.next().map(|entry| matches!(entry, Entry::Plan { .. })) {
                if is_plan {
                    verified = reader.input.offset();
                }
            }
            prop_assert!(at >= verified, "byte {at} was changed unnoticed");
        }
    }

    #[test]
    fn noise_is_no_log(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut log = LOG_MAGIC.to_vec();
        log.push(VERSION);
        log.extend(bytes);
        let replayed = replay(&log, |_, _| {});
        prop_assert!(replayed.is_err());
    }

    /// Nothing that a log's head can ask for makes a replay panic.
    #[test]
    fn runs_of_wild_configurations_are_replayed_too(
        config in wild_config(),
        calls in prop::collection::vec(call(), 1..100),
    ) {
        let log = run(config, &calls);
        let replayed = replay(&log, |_, _| {});
        prop_assert!(replayed.is_ok(), "{replayed:?}");
    }

    /// Well-formed logs of calls that nobody would make.
    #[test]
    fn wild_entries_are_read_as_written_and_never_panic(
        config in wild_config(),
        entries in prop::collection::vec(wild_entry(), 0..60),
    ) {
        let mut recorder = Recorder::new(&config);
        for entry in &entries {
            recorder.note(entry.borrow());
        }
        let mut log = Vec::new();
        recorder.take(&mut log);
        let _ = replay(&log, |_, _| {});
        let Ok((mut reader, read)) = Reader::new(&log) else {
            return Ok(());
        };
        prop_assert_eq!(read, config);
        for entry in &entries {
            let read = reader.next().map(|entry| format!("{entry:?}"));
            prop_assert_eq!(read, Ok(format!("{:?}", entry.borrow())));
        }
        prop_assert!(reader.input.is_empty());
    }
}

fn wild_config() -> impl Strategy<Value = Config> {
    let cost = || prop_oneof![2 => Just(0i64), 4 => 0..1i64 << 40, 1 => Just(COSTS.end - 1)];
    let number = || prop_oneof![Just(0), 0..2000u32, any::<u32>()];
    let time = || prop_oneof![Just(0), 0..1_000_000u64, any::<u64>()];
    (
        (1..6u32, 1..200u32, 1..20u32, number(), number(), number()),
        (
            time(),
            time(),
            time(),
            any::<bool>(),
            any::<bool>(),
            any::<bool>(),
        ),
        (prop::array::uniform7(cost()), cost(), cost()),
        (number(), number(), prop::option::of(number()), number()),
    )
        .prop_map(
            |(
                (slots, blocks, block_tokens, max_queue, q_min, q_max),
                (t_stall_us, t_idle_us, wait_us, stall_auto, save, fixed_cost),
                (coefficients, unit, block),
                (efficiency_permille, oldest_permille, prefill_share_permille, tenant_slots),
            )| Config {
                max_queue,
                q_min,
                q_max,
                t_stall_us,
                t_idle_us,
                wait_us,
                stall_auto,
                save_blocks: if save { 300 } else { 0 },
                fixed_cost,
                efficiency_permille,
                oldest_permille,
                prefill_share_permille,
                tenant_slots,
                cost: CostModel::from_coefficients(coefficients),
                load_cost: IoCost { unit, block },
                save_cost: IoCost {
                    unit: block,
                    block: unit,
                },
                ..Config::new(slots, blocks, block_tokens)
            },
        )
}

/// An entry that owns what it points to.
#[derive(Debug, Clone)]
enum Wild {
    Add(u64, Vec<u32>, u32, u32),
    Call(u8, u64),
    Sampled(u64, Outcome),
    Plan(u64, Planned),
    Complete(u64, u64, Vec<Outcome>),
    IoDone(u64, u32, u64),
}

impl Wild {
    fn borrow(&self) -> Entry<'_> {
        match self {
            Self::Add(id, prompt, max_new, stored) => Entry::Add(Admission {
                stored: *stored,
                priority: Priority::High,
                cache: max_new % 2 == 0,
                ..Admission::new(*id, prompt, *max_new)
            }),
            Self::Call(0, id) => Entry::Cancel(*id),
            Self::Call(1, id) => Entry::Park(*id),
            Self::Call(2, id) => Entry::Unpark(*id),
            Self::Call(3, id) => Entry::Busy(*id),
            Self::Call(_, id) => Entry::Ready(*id),
            Self::Sampled(id, outcome) => Entry::Sampled {
                id: *id,
                outcome: *outcome,
            },
            Self::Plan(now_us, planned) => Entry::Plan {
                now_us: *now_us,
                plan: match planned {
                    Planned::Step(step) => Plan::Step(step),
                    Planned::Wait { until_us } => Plan::Wait {
                        until_us: *until_us,
                    },
                    Planned::Idle => Plan::Idle,
                },
            },
            Self::Complete(step_no, elapsed_us, outcomes) => Entry::Complete {
                step_no: *step_no,
                elapsed_us: *elapsed_us,
                outcomes,
            },
            Self::IoDone(unit_no, done_blocks, elapsed_us) => Entry::IoDone {
                unit_no: *unit_no,
                done_blocks: *done_blocks,
                elapsed_us: *elapsed_us,
            },
        }
    }
}

fn wild_entry() -> impl Strategy<Value = Wild> {
    let id = || prop_oneof![4 => 0..4u64, 1 => any::<u64>()];
    let number = || prop_oneof![4 => 0..20u32, 1 => any::<u32>()];
    let outcome = || {
        prop_oneof![
            Just(Outcome::Prefilled),
            Just(Outcome::Sampling),
            Just(Outcome::Finish),
            Just(Outcome::Failed),
            any::<u32>().prop_map(Outcome::Token),
        ]
    };
    let planned = prop_oneof![
        Just(Planned::Idle),
        any::<u64>().prop_map(|until_us| Planned::Wait { until_us }),
        (any::<u64>(), number(), any::<bool>()).prop_map(|(seed, number, flag)| {
            Planned::Step(Box::new(Step {
                step_no: seed,
                decode: vec![seed, 3],
                prefill: vec![Prefill {
                    id: seed / 2,
                    start: number,
                    tokens: 9,
                    last: flag,
                }],
                io: flag.then(|| IoUnit {
                    unit_no: seed,
                    kind: if seed % 2 == 0 {
                        IoKind::Save {
                            blocks: vec![number, 1],
                        }
                    } else {
                        IoKind::Load {
                            id: seed,
                            start_block: number,
                            blocks: 2,
                        }
                    },
                }),
                states: StateMoves {
                    restore: vec![StateCopy {
                        from: number,
                        to: 0,
                    }],
                    load: flag.then_some(number),
                    keep: vec![StateCopy { from: 1, to: 300 }; 2],
                },
                predicted_us: seed,
                budget_us: u64::MAX,
                contended: !flag,
                floor_limited: flag,
            }))
        }),
    ];
    prop_oneof![
        2 => (id(), prop::collection::vec(any::<u32>(), 0..40), number(), number())
            .prop_map(|(id, prompt, max_new, stored)| Wild::Add(id, prompt, max_new, stored)),
        2 => (0..5u8, id()).prop_map(|(call, id)| Wild::Call(call, id)),
        1 => (id(), outcome()).prop_map(|(id, outcome)| Wild::Sampled(id, outcome)),
        2 => (any::<u64>(), planned).prop_map(|(now_us, planned)| Wild::Plan(now_us, planned)),
        1 => (id(), 0..=MAX_ELAPSED_US, prop::collection::vec(outcome(), 0..4))
            .prop_map(|(no, elapsed_us, outcomes)| Wild::Complete(no, elapsed_us, outcomes)),
        1 => (id(), number(), 0..=MAX_ELAPSED_US)
            .prop_map(|(no, blocks, elapsed_us)| Wild::IoDone(no, blocks, elapsed_us)),
    ]
}

#[test]
fn the_bytes_are_as_documented() {
    let config = Config {
        prefill_share_permille: Some(500),
        cost: CostModel {
            decode: micros(1),
            token: nanos(1000),
            ..CostModel::default()
        },
        ..Config::new(2, 300, 16)
    };
    let mut recorder = Recorder::new(&config);
    recorder.note(Entry::Add(Admission::new(5, &[1, 200], 3)));
    recorder.note(Entry::Plan {
        now_us: 130,
        plan: Plan::Idle,
    });
    recorder.note(Entry::Sampled {
        id: 5,
        outcome: Outcome::Token(1),
    });
    let mut log = Vec::new();
    recorder.take(&mut log);
    assert_eq!(log[..9], *b"ANDSCHED\x04");
    // slots, blocks and block_tokens; 300 = 2 · 128 + 44.
    assert_eq!(log[9..13], [2, 0x80 | 44, 2, 16]);
    let tail = log.len() - 3 - (3 + 4) - (9 + 1 + 3);
    let head = tail - 4;
    assert_eq!(
        log[head..tail],
        fnv1a::digest(fnv1a::START, &log[..head]).to_le_bytes()
    );
    let check = log.len() - 3 - 4;
    // add, id, max_new, cache, tenant, normal, stored, salt, warm, two tokens; 200 = 128 + 72; idle 130 µs after 0.
    assert_eq!(
        log[tail..check],
        [
            1,
            5,
            3,
            1,
            0,
            1,
            0,
            0,
            0,
            2,
            1,
            0x80 | 72,
            1,
            8,
            0x80 | 2,
            1
        ]
    );
    assert_eq!(
        log[check..check + 4],
        fnv1a::digest(fnv1a::START, &log[..check]).to_le_bytes()
    );
    assert_eq!(log[check + 4..], [7, 5, 5]);
    // The published value for one letter.
    assert_eq!(fnv1a::digest(fnv1a::START, b"a"), 0xe40c_292c);
}

#[test]
fn another_decision_is_told_with_both_plans() {
    let mut recorder = Recorder::new(&Config::new(1, 10, 16));
    recorder.note(Entry::Add(Admission::new(5, &[1, 2], 3)));
    recorder.note(Entry::Plan {
        now_us: 130,
        plan: Plan::Idle,
    });
    let mut log = Vec::new();
    recorder.take(&mut log);
    let Err(LogError::Differs {
        now_us,
        recorded,
        replayed,
        ..
    }) = replay(&log, |_, _| {})
    else {
        panic!("taken for the same");
    };
    assert_eq!((now_us, recorded), (130, Planned::Idle));
    let Planned::Step(step) = replayed else {
        panic!("no step")
    };
    assert_eq!(
        step.prefill,
        [Prefill {
            id: 5,
            start: 0,
            tokens: 2,
            last: true
        }]
    );
}

#[test]
fn heads_that_are_none() {
    let mut log = Vec::new();
    Recorder::new(&Config::new(1, 10, 16)).take(&mut log);
    assert_eq!(replay(&log, |_, _| {}), Ok(Replayed::default()));
    assert_eq!(replay(&log[..20], |_, _| {}), Err(LogError::NoHead));
    assert_eq!(replay(b"GGUF", |_, _| {}), Err(LogError::NotALog));
    log[8] = 9;
    assert_eq!(replay(&log, |_, _| {}), Err(LogError::Version { found: 9 }));
    for config in [
        Config::new(1, u32::MAX, u32::MAX),
        Config::new(u32::MAX, 10, 16),
    ] {
        let mut log = Vec::new();
        Recorder::new(&config).take(&mut log);
        assert_eq!(
            replay(&log, |_, _| {}),
            Err(LogError::TooLarge { offset: 0 })
        );
    }
}

#[test]
fn a_log_cannot_fill_the_memory() {
    let mut recorder = Recorder::new(&Config {
        max_queue: u32::MAX,
        ..Config::new(1, 1 << 20, 64)
    });
    for id in 0..100 {
        // An id that was used before counts as what it is now.
        recorder.note(Entry::Add(Admission::new(id, &[1], 1)));
        recorder.note(Entry::Cancel(id));
        recorder.note(Entry::Add(Admission::new(id, &[1], (1 << 26) - 1)));
    }
    let mut log = Vec::new();
    recorder.take(&mut log);
    assert!(matches!(
        replay(&log, |_, _| {}),
        Err(LogError::TooLarge { .. })
    ));
}

#[test]
#[should_panic(expected = "from its start")]
fn a_run_that_has_begun_cannot_be_recorded() {
    let mut scheduler = Scheduler::new(Config::new(1, 10, 16));
    scheduler.add(Admission::new(0, &[1], 1)).unwrap();
    scheduler.record(true);
}
