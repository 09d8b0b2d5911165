//! One test for each thing that the policy must not forget; each fails when that thing is removed.

use super::*;
use crate::cost::{CostModel, micros};

/// 10 µs a step (12 mixed), 1 µs a token, 1 µs a row.
const COST: CostModel = CostModel {
    decode: micros(10),
    prefill: micros(10),
    mixed: micros(12),
    token: micros(1),
    attend: 0,
    context: 0,
    row: micros(1),
};

fn config(mode: Mode) -> Config {
    let base = Config::new(8, 100, 16);
    Config {
        mode,
        t_stall_us: 50,
        t_idle_us: 200,
        q_min: 4,
        cost: COST,
        fixed_cost: true,
        ..base
    }
}

struct Bench {
    policy: Policy,
    estimate: Estimate,
}

impl Bench {
    fn new(config: &Config) -> Self {
        Self {
            policy: Policy::new(config),
            estimate: Estimate::new(config),
        }
    }

    /// Decides for prompts with so many tokens left, so many ready and so many active decoders.
    fn decide(&mut self, remaining: &[u32], ready: u32, active: u32) -> (Turn, Vec<u32>) {
        let candidate = |(index, &remaining): (usize, &u32)| Candidate {
            slot: index as u32,
            turn: (0, 0, 0),
            start: 0,
            remaining,
            stretch: u32::MAX,
            loadable: 0,
            leader: index,
        };
        let prompts: Vec<Candidate> = remaining.iter().enumerate().map(candidate).collect();
        let ready = Shape {
            rows: ready,
            ..Shape::default()
        };
        let turn = self.policy.decide(View {
            prompts: &prompts,
            ready,
            active,
            estimate: &self.estimate,
            may_save: false,
        });
        let mut tokens = vec![0; remaining.len()];
        for part in self.policy.parts() {
            tokens[part.prompt] += part.tokens;
        }
        (turn, tokens)
    }
}

const DECODE: Turn = Turn::Step {
    decode: true,
    forced: false,
};
const PREFILL: Turn = Turn::Step {
    decode: false,
    forced: false,
};

#[test]
fn nothing_to_do_is_idle_and_keeps_the_reservation() {
    let mut bench = Bench::new(&Config {
        wait_us: 5,
        ..config(Mode::Mix)
    });
    assert_eq!(bench.decide(&[], 2, 2).0, DECODE);
    assert_eq!(bench.decide(&[], 0, 2).0, Turn::Idle);
    assert_eq!(bench.decide(&[], 1, 2).0, Turn::Wait);
}

#[test]
fn all_decoders_run_and_prompts_get_what_is_left() {
    let mut bench = Bench::new(&config(Mode::Mix));
    // 50 − 12 − 3 rows.
    assert_eq!(bench.decide(&[100], 3, 3), (DECODE, vec![35]));
    assert_eq!(bench.decide(&[100], 0, 0), (PREFILL, vec![100]));
    assert_eq!(bench.decide(&[1000], 0, 0), (PREFILL, vec![190]));
    // A busy decoder counts: its token may come any moment.
    assert_eq!(bench.decide(&[1000], 0, 1), (PREFILL, vec![40]));
}

#[test]
fn a_step_has_whole_granules_of_rows_where_prompts_go_on() {
    let by = |row_granule| {
        Bench::new(&Config {
            row_granule,
            ..config(Mode::Mix)
        })
    };
    let mut bench = by(9);
    // 35 tokens fit beside 3 rows: 38 rows, 2 over whole granules.
    assert_eq!(bench.decide(&[100], 3, 3), (DECODE, vec![33]));
    assert_eq!(bench.policy.spare, bench.estimate.model().range(33, 2));
    // The end of a prompt is not put off.
    assert_eq!(bench.decide(&[35], 3, 3), (DECODE, vec![35]));
    let (_, tokens) = bench.decide(&[10, 100], 3, 3);
    assert_eq!((tokens[0], (tokens[0] + tokens[1] + 3) % 9), (10, 0));
    assert_eq!(bench.decide(&[1000], 0, 0), (PREFILL, vec![189]));
    // Most of a granule is worth more than the time it takes, and few rows are worth more than whole granules.
    for granule in [8, 12] {
        assert_eq!(by(granule).decide(&[100], 3, 3), (DECODE, vec![35]));
    }
}

#[test]
fn after_a_prefill_turn_the_decoders_are_owed_one() {
    let mut bench = Bench::new(&config(Mode::HandOff));
    assert_eq!(bench.decide(&[500], 1, 1), (PREFILL, vec![40]));
    assert_eq!(bench.decide(&[460], 1, 1), (DECODE, vec![0]));
    assert_eq!(bench.decide(&[460], 1, 1), (PREFILL, vec![40]));
    // Also when it was prefill's turn because no decoder was ready.
    assert_eq!(bench.decide(&[420], 1, 1), (DECODE, vec![0]));
    assert_eq!(bench.decide(&[420], 0, 1), (PREFILL, vec![40]));
    assert_eq!(bench.decide(&[380], 1, 1), (DECODE, vec![0]));
}

#[test]
fn the_oldest_keeps_its_part_and_the_shortest_gets_the_rest() {
    let mut bench = Bench::new(&config(Mode::Mix));
    // 40 µs of prefill: a quarter for the oldest.
    assert_eq!(bench.decide(&[900, 100, 300], 0, 1).1, [10, 30, 0]);
    assert_eq!(bench.decide(&[100, 900, 300], 0, 1).1, [40, 0, 0]);
    // What the shortest leaves goes to the oldest first.
    assert_eq!(bench.decide(&[900, 5, 300], 0, 1).1, [35, 5, 0]);
    assert_eq!(bench.decide(&[20, 5, 300], 0, 1).1, [20, 5, 15]);
}

#[test]
fn a_limit_in_tokens_is_shared_like_the_time() {
    let mut bench = Bench::new(&Config {
        q_max: 16,
        ..config(Mode::Mix)
    });
    assert_eq!(bench.decide(&[900, 100, 300], 0, 1).1, [4, 12, 0]);
    assert_eq!(bench.decide(&[900, 2, 300], 0, 1).1, [14, 2, 0]);
}

#[test]
fn a_limit_beside_decoders_leaves_an_idle_machine_alone() {
    let mut bench = Bench::new(&Config {
        q_max_contended: 3,
        ..config(Mode::Mix)
    });
    assert_eq!(
        bench.decide(&[900], 1, 1),
        (DECODE, vec![3]),
        "even below q_min"
    );
    assert_eq!(bench.decide(&[900], 0, 1), (PREFILL, vec![3]));
    assert_eq!(bench.decide(&[900], 0, 0), (PREFILL, vec![190]));
}

#[test]
fn prompts_progress_even_without_room() {
    for mode in [Mode::Mix, Mode::HandOff] {
        let mut bench = Bench::new(&Config {
            t_stall_us: 5,
            ..config(mode)
        });
        let (turn, tokens) = bench.decide(&[900, 100], 1, 1);
        assert_eq!(
            turn,
            Turn::Step {
                decode: mode == Mode::Mix,
                forced: true
            }
        );
        assert_eq!(tokens, [0, 4], "the smallest range, for the shortest");
    }
    // Crumbs become a whole range.
    let mut bench = Bench::new(&Config {
        t_stall_us: 15,
        ..config(Mode::Mix)
    });
    assert_eq!(bench.decide(&[900], 1, 1).1, [4]);
    // The end of a prompt is never a crumb.
    assert_eq!(bench.decide(&[2], 1, 1), (DECODE, vec![2]));
}

#[test]
fn at_most_one_wait_at_a_step_boundary() {
    let mut bench = Bench::new(&Config {
        wait_us: 5,
        ..config(Mode::Mix)
    });
    assert_eq!(bench.decide(&[100], 2, 2).0, DECODE);
    assert_eq!(bench.decide(&[100], 1, 2).0, Turn::Wait);
    assert_eq!(bench.decide(&[100], 1, 2).0, DECODE);
    assert_eq!(
        bench.decide(&[100], 1, 2).0,
        Turn::Wait,
        "the next boundary may wait again"
    );
    assert_eq!(bench.decide(&[100], 2, 2).0, DECODE, "nobody is missing");
}

#[test]
fn a_share_holds_prefill_to_its_credit() {
    let mut bench = Bench::new(&Config {
        prefill_share_permille: Some(500),
        ..config(Mode::Mix)
    });
    // A decode step of 11 µs earns 11 µs, of which mixing takes 2.
    assert_eq!(bench.decide(&[900], 1, 1).1, [9]);
    assert_eq!(bench.decide(&[900], 1, 1).1, [9]);
    for (prompts, ready) in [(&[900][..], 0), (&[], 1)] {
        bench.decide(&[4], 1, 1);
        assert_eq!(bench.policy.credit, fixed(5), "earned 11, used 4 and 2");
        bench.decide(prompts, ready, ready);
        assert_eq!(
            bench.policy.credit, 0,
            "nothing is carried on without contention"
        );
    }
}

#[test]
fn credit_is_neither_hoarded_nor_owed_without_end() {
    let share = |mode| Config {
        prefill_share_permille: Some(900),
        ..config(mode)
    };
    let mut mix = Bench::new(&share(Mode::Mix));
    for _ in 0..100 {
        // 99 µs earned, little used.
        mix.decide(&[4], 1, 1);
    }
    assert_eq!(mix.policy.credit, fixed(50), "T_stall at most");
    let mut hand_off = Bench::new(&Config {
        prefill_share_permille: Some(100),
        ..share(Mode::HandOff)
    });
    for _ in 0..100 {
        // Decoders that are always busy let prefill have every turn.
        hand_off.decide(&[900], 0, 1);
    }
    assert_eq!(
        hand_off.policy.credit,
        -fixed(50),
        "the longest turn at most"
    );
    let turns = (1..).find(|_| {
        !hand_off
            .decide(&[900], 1, 1)
            .1
            .iter()
            .all(|&tokens| tokens == 0)
    });
    // 50 µs at 11/9 µs a decode turn.
    assert_eq!(turns, Some(42));
}

#[test]
fn a_follower_waits_and_lends_its_rank() {
    let config = config(Mode::Mix);
    let (mut policy, estimate) = (Policy::new(&config), Estimate::new(&config));
    let candidate = |remaining, leader| Candidate {
        slot: 0,
        turn: (0, 0, 0),
        start: 0,
        remaining,
        stretch: u32::MAX,
        loadable: 0,
        leader,
    };
    let prompts = [
        candidate(500, 0),
        candidate(900, 1),
        candidate(100, 1),
        candidate(600, 3),
    ];
    let view = View {
        prompts: &prompts,
        ready: Shape::default(),
        active: 1,
        estimate: &estimate,
        may_save: false,
    };
    policy.decide(view);
    assert_eq!(
        policy.parts(),
        [
            Part {
                prompt: 0,
                tokens: 10
            },
            Part {
                prompt: 1,
                tokens: 30
            }
        ]
    );
}

#[test]
fn the_flow_whose_turn_it_is_gets_what_it_can_use() {
    let config = config(Mode::Mix);
    let (mut policy, estimate) = (Policy::new(&config), Estimate::new(&config));
    let candidate = |turn, remaining, leader| Candidate {
        slot: 0,
        turn: (turn, 0, 0),
        start: 0,
        remaining,
        stretch: u32::MAX,
        loadable: 0,
        leader,
    };
    let mut tokens = |prompts: &[Candidate]| -> Vec<(usize, u32)> {
        policy.decide(View {
            prompts,
            ready: Shape::default(),
            active: 1,
            estimate: &estimate,
            may_save: false,
        });
        policy
            .parts()
            .iter()
            .map(|part| (part.prompt, part.tokens))
            .collect()
    };
    // The second flow's oldest and shortest share; a shorter prompt of the first waits.
    let second = [
        candidate(9, 5, 0),
        candidate(3, 900, 1),
        candidate(3, 700, 2),
    ];
    assert_eq!(tokens(&second), [(1, 10), (2, 30)]);
    // What it cannot use goes to the next flow.
    let small = [candidate(9, 500, 0), candidate(3, 7, 1), candidate(3, 2, 2)];
    assert_eq!(tokens(&small), [(0, 31), (1, 7), (2, 2)]);
}

/// 5 µs a unit and 2 µs a block, a candidate that could load ten blocks.
fn with_store(mode: Mode) -> (Bench, Candidate) {
    let io = crate::cost::IoCost {
        unit: micros(5),
        block: micros(2),
    };
    let bench = Bench::new(&Config {
        load_cost: io,
        save_cost: io,
        save_blocks: 90,
        ..config(mode)
    });
    let loads = Candidate {
        slot: 0,
        turn: (0, 0, 0),
        start: 0,
        remaining: 30,
        stretch: u32::MAX,
        loadable: 10,
        leader: 0,
    };
    (bench, loads)
}

#[test]
fn a_load_takes_its_part_of_the_budget() {
    let (mut bench, loads) = with_store(Mode::Mix);
    let computes = Candidate {
        remaining: 900,
        loadable: 0,
        leader: 1,
        ..loads
    };
    let one = Shape {
        rows: 1,
        ..Shape::default()
    };
    let mut decide = |prompts: &[Candidate], ready: Shape| {
        let turn = bench.policy.decide(View {
            prompts,
            ready,
            active: 1,
            estimate: &bench.estimate,
            may_save: true,
        });
        let tokens: Vec<u32> = bench
            .policy
            .parts()
            .iter()
            .map(|part| part.tokens)
            .collect();
        (turn, bench.policy.io(), tokens)
    };
    // 50 − 12 − 1 µs are left beside a decoder: all ten blocks take 25, tokens the rest.
    let load = |blocks| Some(Io::Load { prompt: 0, blocks });
    assert_eq!(
        decide(&[loads, computes], one),
        (DECODE, load(10), vec![12])
    );
    // Alone it is limited by the budget.
    let more = Candidate {
        loadable: 100,
        ..loads
    };
    assert_eq!(decide(&[more], one), (DECODE, load(16), vec![]));
}

#[test]
fn a_load_without_room_is_a_block_at_a_time() {
    let (bench, loads) = with_store(Mode::HandOff);
    let mut policy = Policy::new(&Config {
        t_stall_us: 5,
        ..config(Mode::HandOff)
    });
    let ready = Shape {
        rows: 1,
        ..Shape::default()
    };
    let view = View {
        prompts: &[loads],
        ready,
        active: 1,
        estimate: &bench.estimate,
        may_save: false,
    };
    let forced = Turn::Step {
        decode: false,
        forced: true,
    };
    assert_eq!(policy.decide(view), forced);
    assert_eq!(
        policy.io(),
        Some(Io::Load {
            prompt: 0,
            blocks: 1
        })
    );
    assert_eq!(
        policy.decide(view),
        DECODE,
        "it owes a turn like any prefill"
    );
}

#[test]
fn saves_take_spare_time_and_a_fifth_from_decoders() {
    let (mut bench, _) = with_store(Mode::Mix);
    let mut decide = |rows, active| {
        let ready = Shape {
            rows,
            ..Shape::default()
        };
        let turn = bench.policy.decide(View {
            prompts: &[],
            ready,
            active,
            estimate: &bench.estimate,
            may_save: true,
        });
        (turn, bench.policy.io())
    };
    // Nothing else to do: 97 would fit T_idle, 200 µs, but a unit has 90 at most.
    assert_eq!(decide(0, 0), (PREFILL, Some(Io::Save { blocks: 90 })));
    // A decoder that is sampling is not kept waiting.
    assert_eq!(decide(0, 1), (Turn::Idle, None));
    // Steps of 11 µs earn 2.75 each; one block costs 7, two cost 9.
    let saves: Vec<usize> = (0..12).filter(|_| decide(1, 1).1.is_some()).collect();
    assert_eq!(saves, [2, 5, 8, 10]);
}

#[test]
fn prompts_leave_room_for_saving() {
    let (bench, loads) = with_store(Mode::Mix);
    let computes = Candidate {
        remaining: 100_000,
        loadable: 0,
        ..loads
    };
    let decide = |policy: &mut Policy, rows: u32, may_save: bool| {
        let ready = Shape {
            rows,
            ..Shape::default()
        };
        policy.decide(View {
            prompts: &[computes],
            ready,
            active: rows,
            estimate: &bench.estimate,
            may_save,
        });
        let tokens: u32 = policy.parts().iter().map(|part| part.tokens).sum();
        (tokens, policy.io())
    };
    let mut policy = bench.policy.clone();
    let (all, _) = decide(&mut policy, 0, false);
    // A sixteenth of what is left of 200 µs is for three blocks, 11 µs, and a token takes one.
    let save = |blocks| Some(Io::Save { blocks });
    assert_eq!(decide(&mut policy, 0, true), (all - 11, save(3)));
    // Beside a decoder it is what saving may take from that one, however much there is to compute.
    let (all, _) = decide(&mut policy, 1, false);
    let steps: Vec<_> = (0..12).map(|_| decide(&mut policy, 1, true)).collect();
    let saving = steps.iter().filter(|(_, io)| io.is_some()).count();
    assert_eq!(saving, 4, "{steps:?}");
    assert!(
        steps
            .iter()
            .all(|&(tokens, io)| (tokens < all) == io.is_some())
    );
}
