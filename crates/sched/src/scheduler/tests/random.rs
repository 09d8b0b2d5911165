//! Random event logs in virtual time: wrong cost models, noise, spikes, clients that leave, stall or fail, shared prefixes,
//! little memory.

use proptest::prelude::*;

use super::world::{Arrival, Event, Machine, World, progresses};
use crate::config::{Config, Mode};
use crate::cost::{CostModel, FRACTION_BITS, Fixed, IoCost, Regime, micros, nanos};
use crate::step::{Priority, TenantId};

/// One client: when it comes, with what, and what it does later (µs after its arrival).
#[derive(Debug, Clone)]
struct Client {
    arrival_us: u64,
    /// Which common text its prompt starts with, and how much of it.
    text: u32,
    common: u32,
    own: u32,
    answer: u32,
    cache: bool,
    cancel_us: Option<u64>,
    park_us: Option<(u64, u64)>,
    fail_us: Option<u64>,
    tenant: TenantId,
    priority: Priority,
    stored: u32,
}

fn client() -> impl Strategy<Value = Client> {
    let times = (
        0..4000u64,
        prop::option::weighted(0.2, 0..2000u64),
        prop::option::weighted(0.2, (0..2000u64, 0..2000u64)),
        prop::option::weighted(0.1, 0..2000u64),
    );
    let texts = (
        0..3u32,
        0..40u32,
        0..30u32,
        1..12u32,
        prop::bool::weighted(0.8),
    );
    let whose = (
        0..3u64,
        prop::sample::select(Priority::ALL.to_vec()),
        prop_oneof![2 => Just(0), 1 => 0..60u32],
    );
    (times, texts, whose).prop_map(
        |(
            (arrival_us, cancel_us, park_us, fail_us),
            (text, common, own, answer, cache),
            (tenant, priority, stored),
        )| Client {
            tenant,
            priority,
            stored,
            arrival_us,
            text,
            common,
            own,
            answer,
            cache,
            cancel_us,
            park_us,
            fail_us,
        },
    )
}

fn cost() -> impl Strategy<Value = CostModel> {
    let intercepts = (0..60u32, 0..60u32, 0..60u32);
    (intercepts, 1..9000u32, 0..30u32, 0..100u32, 0..9000u32).prop_map(
        |((decode, prefill, mixed), token, attend, context, row)| CostModel {
            decode: micros(decode),
            prefill: micros(prefill),
            mixed: micros(mixed),
            token: nanos(token),
            attend: nanos(attend),
            context: nanos(context),
            row: nanos(row),
        },
    )
}

fn config() -> impl Strategy<Value = Config> {
    let numbers = (1..6u32, 1..6u32, 40..120u32, 1..10u32, 4..60u32);
    let times = (20..300u64, 100..900u64, prop_oneof![Just(0), Just(10u64)]);
    let shares = (
        0..1000u32,
        prop::option::of(100..900u32),
        prop_oneof![Just(0), Just(500u32)],
    );
    let mode = prop_oneof![Just(Mode::Mix), Just(Mode::HandOff)];
    let more = (
        prop_oneof![Just(u32::MAX), 1..3u32],
        prop::collection::btree_map(0..3u64, 100..5000u32, 0..3),
        prop_oneof![Just(0), 1..4u32, Just(u32::MAX)],
        prop_oneof![2 => Just(None), 1 => (0..9u32, 1..4u32).prop_map(Some)],
    );
    (numbers, times, shares, mode, more).prop_map(
        |(
            (slots, block_tokens, blocks, q_min, q_max),
            (t_stall_us, t_idle_us, wait_us),
            (oldest, share, efficiency),
            mode,
            (tenant_slots, tenant_weights, save_blocks, states),
        )| {
            Config {
                tenant_slots,
                tenant_weights,
                save_blocks,
                checkpoints: states.map_or(0, |(more, _)| slots + 2 + more),
                checkpoint_blocks: states.map_or(1, |(_, blocks)| blocks),
                t_stall_us,
                t_idle_us,
                q_min: q_min.min(q_max),
                q_max,
                wait_us,
                oldest_permille: oldest,
                prefill_share_permille: share,
                efficiency_permille: efficiency,
                max_queue: 8,
                mode,
                ..Config::new(slots, blocks, block_tokens)
            }
        },
    )
}

fn machine() -> impl Strategy<Value = Machine> {
    let noise = prop_oneof![Just(0), Just(200u64)];
    let spikes = prop_oneof![Just(0), Just(20u64)];
    let tau = prop_oneof![Just(0), Just(7u64), Just(50u64)];
    let io = (
        (0..30u32, 0..20u32),
        prop_oneof![Just(0), Just(4u64)],
        prop_oneof![Just(0), Just(4u64)],
    );
    (cost(), (noise, spikes, tau), io, 1..u64::MAX).prop_map(
        |(
            cost,
            (noise_permille, spike_every, tau_us),
            ((unit, block), io_fails_every, io_late_every),
            seed,
        )| Machine {
            io: IoCost {
                unit: micros(unit),
                block: micros(block),
            },
            io_fails_every,
            io_late_every,
            cost,
            noise_permille,
            spike_every,
            tau_us,
            seed,
        },
    )
}

fn prompt(client: &Client, id: u32) -> Vec<u32> {
    let common = (0..client.common).map(|i| 100 * client.text + i / 8);
    common
        .chain((0..client.own + 1).map(|i| 1000 + id * 64 + i))
        .collect()
}

fn world(config: &Config, machine: &Machine, clients: &[Client]) -> World {
    let mut world = World::new(config.clone(), machine.clone()).with_kv();
    for (client, id) in clients.iter().zip(1..) {
        let at = client.arrival_us;
        let prompt = prompt(client, id);
        let id = u64::from(id);
        world.at(
            at,
            Event::Arrive(Arrival {
                id,
                prompt,
                answer: client.answer,
                cache: client.cache,
                tenant: client.tenant,
                priority: client.priority,
                stored: client.stored,
            }),
        );
        client
            .cancel_us
            .inspect(|after| world.at(at + after, Event::Cancel(id)));
        client
            .fail_us
            .inspect(|after| world.at(at + after, Event::Fail(id)));
        if let Some((after, long)) = client.park_us {
            world.at(at + after, Event::Park(id));
            world.at(at + after + long, Event::Unpark(id));
        }
    }
    world
}

/// I3: with a prefill share σ, prompts wait at most `K = 1 + ⌈(C_max + ΔT(floor) + a_M − a_D)·(1−σ)/(σ·t_dec)⌉` steps.
fn check_patience(world: &World) {
    let config = &world.scheduler.config;
    let Some(share) = config.prefill_share_permille.map(i64::from) else {
        return;
    };
    let decode_only = || {
        world
            .log
            .iter()
            .filter(|ran| !progresses(&ran.step) && ran.prompts > 0)
    };
    let shortest = decode_only()
        .map(|ran| ran.true_us.cast_signed())
        .min()
        .unwrap_or(0);
    if shortest == 0 {
        return;
    }
    let estimate = &world.scheduler.estimate;
    let floor = [Regime::Prefill, Regime::Mixed]
        .map(|regime| estimate.floor_tokens(regime))
        .into_iter()
        .max();
    // No prompt is longer than 80 tokens.
    let floor = (config.cost.range(80, floor.unwrap_or(0)) >> FRACTION_BITS) + 1;
    let us = |cost: Fixed| cost >> FRACTION_BITS;
    let longest = config
        .t_stall_us
        .cast_signed()
        .max(us(config.cost.prefill) + floor);
    let mixing = us(config.cost.mixed) - us(config.cost.decode) + 1;
    let debt = (longest + floor + mixing.max(0)) * (1000 - share);
    let most = 1 + debt / (share * shortest) + 1;
    let mut waited = 0;
    for ran in &world.log {
        waited = if !progresses(&ran.step) && ran.prompts > 0 {
            waited + 1
        } else {
            0
        };
        assert!(
            waited <= most,
            "I3 {waited} steps without prefill, {most} at most"
        );
    }
}

/// So many logs, or as many as `PROPTEST_CASES` asks for.
fn logs(usual: u32) -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let config = ProptestConfig::default();
    ProptestConfig {
        cases: if asked { config.cases } else { usual },
        ..config
    }
}

fn clients() -> impl Strategy<Value = Vec<Client>> {
    prop::collection::vec(client(), 1..14)
}

proptest! {
    #![proptest_config(logs(1000))]

    /// I1, I3, I5, I6, I8, I9; every sequence ends once, every block comes back, no row reads wrong KV.
    #[test]
    fn any_log_keeps_the_invariants(
        config in config(),
        machine in machine(),
        errors in prop::array::uniform7(100..10_000i64),
        clients in clients(),
    ) {
        let io = IoCost {
            unit: machine.io.unit * errors[0] / 1000,
            block: machine.io.block * errors[1] / 1000,
        };
        let config = Config { cost: machine.cost.scaled(errors), load_cost: io, save_cost: io, ..config };
        let mut first = world(&config, &machine, &clients);
        first.run();
        first.check_log();
        for id in 1..=clients.len() as u64 {
            let refused = first.refused.contains(&id);
            prop_assert!(refused != first.ended.contains_key(&id), "{id} does not end once");
        }
        let blocks = first.scheduler.stats().blocks;
        prop_assert_eq!((blocks.used, blocks.reserved), (0, 0));
        prop_assert_eq!(blocks.cached + blocks.free, config.blocks);

        let mut second = world(&config, &machine, &clients);
        second.run();
        prop_assert_eq!(first.log, second.log, "I9");
    }

    /// I2 with an exact model: a contended step with a prompt fits T_stall, or says that the floor did not.
    #[test]
    fn exact_costs_keep_the_stall_bound(config in config(), machine in machine(), clients in clients()) {
        let machine = Machine { noise_permille: 0, spike_every: 0, io_late_every: 0, ..machine };
        let io = machine.io;
        let config = Config { cost: machine.cost, load_cost: io, save_cost: io, fixed_cost: true, ..config };
        let mut world = world(&config, &machine, &clients);
        world.run();
        for ran in &world.log {
            prop_assert_eq!(ran.true_us, ran.step.predicted_us);
            let tokens: u32 = ran.step.prefill.iter().map(|range| range.tokens).sum();
            let fits = ran.true_us <= ran.step.budget_us;
            if ran.step.contended && !ran.step.prefill.is_empty() {
                prop_assert!(fits || ran.step.floor_limited);
                let floor = world.scheduler.estimate.floor_tokens(Regime::Prefill)
                    .max(world.scheduler.estimate.floor_tokens(Regime::Mixed));
                prop_assert!(fits || tokens <= floor);
            }
        }
        check_patience(&world);
    }
}

proptest! {
    #![proptest_config(logs(100))]

    /// A cold start with every coefficient wrong, a decoder and a long prompt: the first chunk is at most
    /// twice the largest seen to fit, hardly a step breaks the bound and none by much, and the prompt still gets on.
    #[test]
    fn a_cold_start_is_safe(
        shape in (1..20u32, 1..20u32, 1..20u32, 60..500u32, 0..20u32, 0..300u32, 1..500u32),
        errors in prop::array::uniform7(100..10_000i64),
        mode in prop_oneof![Just(Mode::Mix), Just(Mode::HandOff)],
    ) {
        let (decode, prefill, mixed, token, attend, context, row) = shape;
        let truth = CostModel {
            decode: micros(1000 * decode),
            prefill: micros(1000 * prefill),
            mixed: micros(1000 * decode.max(mixed)),
            token: micros(token),
            attend: nanos(attend),
            context: nanos(context),
            row: micros(row),
        };
        let config = Config { mode, t_stall_us: 60_000, cost: truth.scaled(errors), ..Config::new(4, 4000, 16) };
        let mut world = World::new(config, Machine::exact(truth));
        world.arrive(0, 0, 10, 3000);
        world.arrive(300_000, 1, 12_000, 2);
        world.run_until(60_000_000);
        let contended = || world.log.iter().filter(|ran| ran.step.contended && !ran.step.prefill.is_empty());
        prop_assert!(contended().next().unwrap().step.prefill[0].tokens <= 20);
        let over = |ran: &&super::world::Ran| ran.true_us > 66_000;
        let broken = contended().filter(over).count();
        let worst = contended().map(|ran| ran.true_us).max().unwrap();
        prop_assert!(broken <= 2 && worst <= 90_000, "{broken} of {}, worst {worst}", contended().count());
        // Once the model is known the budget is used.
        let last = contended().rfind(|ran| !ran.step.prefill[0].last).unwrap();
        prop_assert!(last.true_us >= 50_000, "{} of 60000 µs used", last.true_us);
    }
}
