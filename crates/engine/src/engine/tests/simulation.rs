//! The whole engine in virtual time: tenants and priorities, arrivals in bursts, slow readers, disconnects and retries, KV that
//! is saved, loaded, late or lost, queues and prompts that take too long, failing rows, a failing model, shutdown. One seed
//! decides everything, so a failure repeats and two runs of a seed give the same log.

use std::fmt::Write;

use andante_sched::Priority;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use sha2::{Digest, Sha256};

use super::*;
use crate::tenant::Tenant;

struct Client {
    prompt: String,
    tokens: u32,
    greedy: bool,
    /// Reads in one step of this many, on average.
    patience: u32,
    /// Leaves in one step of this many, on average.
    loyalty: Option<u32>,
    stream: Option<EventStream>,
    events: Vec<Event>,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    AsAsked,
    ModelFailed,
}

struct World {
    rng: Pcg64,
    rig: Rig,
    clients: Vec<Client>,
    log: String,
    refused: u32,
    /// Of the model.
    window: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut pick = |choices: &[u32]| choices[rng.next_u32() as usize % choices.len()];
        let config = EngineConfig {
            sessions: pick(&[1, 3, 8]),
            context: 200,
            cache_tokens: pick(&[0, 200]),
            prefill_chunk: pick(&[1, 16, 100]),
            min_prefill_chunk: pick(&[1, 8]),
            max_stall_ms: pick(&[2, 20]),
            mode: if pick(&[0, 1]) == 0 {
                Mode::Mix
            } else {
                Mode::HandOff
            },
            max_active: pick(&[0, 0, 5]),
            profile: [Profile::Interactive, Profile::Batch, Profile::Strict]
                [pick(&[0, 0, 1, 2]) as usize],
            tenant_sessions: [None, Some(1), Some(2)][pick(&[0, 1, 2]) as usize],
            tenant_weights: [(Tenant::named("tenant 1").id(), 4000)].into(),
            queue_timeout_s: [None, Some(1)][pick(&[0, 1]) as usize],
            first_token_timeout_s: [None, Some(1)][pick(&[0, 1]) as usize],
            max_queue: pick(&[0, 2, 10]),
            ring_events: pick(&[1, 4, 64]) as usize,
            reader_timeout_s: pick(&[1, 300]),
            ..EngineConfig::default()
        };
        let block_tokens = pick(&[4, 16]);
        let fails = pick(&[0, 0, 0, 300]);
        // A slow machine lets clocks run out that a fast one never sees.
        let row_us = u64::from(pick(&[100, 100, 10_000]));
        let (has_store, io_fails, io_late) = (pick(&[0, 1, 1]) == 1, pick(&[0, 3]), pick(&[0, 2]));
        let window = pick(&[0, 0, 5, 40]) as usize;
        let clock = Arc::new(VirtualClock::default());
        let ticks = Arc::clone(&clock);
        let mut model = FakeModel::new(VOCAB)
            .block_tokens(block_tokens)
            .window(window)
            .poison(u32::from(b'Z'))
            .on_forward(move |batch| ticks.advance(1000 + row_us * batch.len() as u64));
        if fails > 0 {
            model = model.fail_after(u64::from(fails));
        }
        let store = model.store(Arc::clone(&clock), 500, 200);
        let store = store.failing(seed, io_fails).late(io_late);
        let (mut engine, handle) = Engine::new(
            model.boxed(),
            text_stack(),
            &config,
            Arc::clone(&clock) as Arc<dyn Clock>,
        )
        .expect("valid");
        if has_store {
            engine = engine.with_store(Box::new(store));
        }
        Self {
            rng,
            rig: Rig {
                engine,
                handle,
                clock,
            },
            clients: Vec::new(),
            log: String::new(),
            refused: 0,
            window,
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.next_u32().is_multiple_of(one_in)
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.rng.next_u32() % limit
    }

    /// A client with one of a few beginnings, so that prefixes are shared.
    fn arrive(&mut self) {
        let shared = long(self.below(4) as usize * 37);
        let prompt = format!(
            "{shared}{}{}",
            self.below(5),
            if self.chance(12) { "Z" } else { "" }
        );
        let greedy = self.chance(2);
        let sampling = Sampling {
            temperature: if greedy { 0.0 } else { 1.3 },
            seed: Some(self.rng.next_u64()),
            max_tokens: Some(1 + self.below(60)),
            stop: if self.chance(3) {
                vec!["qz".into()]
            } else {
                Vec::new()
            },
            cache_prompt: !self.chance(8),
            ..Sampling::default()
        };
        let tokens = sampling.max_tokens.expect("just set");
        let tenant = Tenant::named(&format!("tenant {}", self.below(3)));
        let priority = Priority::ALL[self.below(3) as usize];
        let mut request = self.rig.request(&prompt, sampling);
        request.set_account(tenant, priority);
        match self.rig.handle.submit(request) {
            Ok(stream) => {
                let patience = [1, 1, 3, 40][self.below(4) as usize];
                let loyalty = self.chance(5).then_some(20);
                let stream = Some(stream);
                self.clients.push(Client {
                    prompt,
                    tokens,
                    greedy,
                    patience,
                    loyalty,
                    stream,
                    events: Vec::new(),
                });
            }
            Err(error) => {
                self.refused += 1;
                writeln!(self.log, "refused: {error}").expect("memory");
            }
        }
    }

    fn let_clients_act(&mut self) {
        for index in 0..self.clients.len() {
            let (patience, loyalty) = (self.clients[index].patience, self.clients[index].loyalty);
            let reads = self.chance(patience);
            let leaves = loyalty.is_some_and(|one_in| self.chance(one_in));
            let client = &mut self.clients[index];
            let Some(stream) = &mut client.stream else {
                continue;
            };
            if leaves {
                writeln!(self.log, "{index} leaves").expect("memory");
                client.stream = None;
            } else if reads && let Some(event) = stream.try_recv() {
                writeln!(self.log, "{index} reads {event:?}").expect("memory");
                client.events.push(event);
            }
        }
    }

    /// How the engine has come to its end, if it has.
    fn step(&mut self) -> Option<End> {
        match self.rig.engine.step() {
            Ok(Progress::Stepped) => {
                let record = last_step(&self.rig.engine);
                writeln!(self.log, "{} µs: {record:?}", self.rig.clock.now_us()).expect("memory");
            }
            Ok(Progress::Waiting { until_us }) => {
                writeln!(self.log, "waiting until {until_us:?}").expect("memory");
                // As the thread would: until then, or until a client does something.
                let now_us = self.rig.clock.now_us();
                let wait_us = until_us.map_or(50_000, |until| until.saturating_sub(now_us));
                self.rig.clock.advance(wait_us.clamp(1, 50_000));
            }
            Ok(Progress::Ended) => return Some(End::AsAsked),
            Err(error) => {
                writeln!(self.log, "{error}").expect("memory");
                return Some(End::ModelFailed);
            }
        }
        None
    }

    fn run(mut self) -> String {
        let shutdown_at = 200 + self.below(600);
        let how = if self.chance(2) {
            Shutdown::Now
        } else {
            Shutdown::Drain {
                timeout: Duration::from_secs(2),
            }
        };
        let mut end = None;
        for step in 0..100_000 {
            if step < shutdown_at && self.chance(5) {
                let burst = if self.chance(10) { 8 } else { 1 };
                (0..burst).for_each(|_| self.arrive());
            }
            if step == shutdown_at {
                self.rig.handle.shutdown(how);
            }
            self.let_clients_act();
            end = self.step();
            if end.is_some() {
                break;
            }
        }
        // A failed model leaves its last step unfinished, and takes the KV memory with it.
        if end.expect("the engine ends") == End::AsAsked {
            self.rig.assert_empty();
            for account in self.rig.engine.scheduler.tenants() {
                assert_eq!((account.queued, account.resident), (0, 0));
            }
        }
        self.check();
        self.log
    }

    /// Every request has ended exactly once.
    fn check(&mut self) {
        assert!(self.rig.engine.generations.is_empty());
        let (mut answered, mut failed, mut gone) = (0, 0, 0);
        for client in &mut self.clients {
            let Some(mut stream) = client.stream.take() else {
                gone += 1;
                continue;
            };
            client
                .events
                .extend(std::iter::from_fn(|| stream.try_recv()));
            assert!(stream.is_done());
            let answer = Answer::from_events(&client.events);
            match &answer.end {
                Event::Finished { reason, usage, .. } => {
                    answered += 1;
                    assert!(!client.prompt.contains('Z'));
                    let tokens = client.tokens as usize;
                    let expected = letters_in_window(&client.prompt, tokens, self.window);
                    if client.greedy && *reason == FinishReason::Length {
                        assert_eq!(answer.text, expected);
                        assert_eq!(usage.completion_tokens, client.tokens);
                    } else if client.greedy {
                        assert!(expected.starts_with(&format!("{}qz", answer.text)));
                    }
                }
                _ => failed += 1,
            }
        }
        let status = self.rig.handle.status();
        assert!(status.finished >= answered && status.failed >= failed);
        // A client that left after its end was counted with that end.
        assert_eq!(
            status.finished + status.failed + status.cancelled,
            self.clients.len() as u64
        );
        assert_eq!(answered + failed + gone, self.clients.len() as u64);
        assert_eq!(status.refused, u64::from(self.refused));
        assert_eq!(status.failures.values().sum::<u64>(), status.failed);
    }
}

#[test]
fn every_request_ends_once_and_every_block_comes_back() {
    // What the seeds are meant to reach.
    const REACHED: [&str; 14] = [
        "Finished",
        "ShuttingDown",
        "NonFiniteLogits",
        "QueueTimeout",
        "FirstTokenTimeout",
        "ReaderTimeout",
        "leaves",
        "refused",
        "a scripted failure",
        "io: Some(Load",
        "io: Some(Save",
        "decode: [], prefill: [], io: Some",
        "contended: true",
        "floor_limited: true",
    ];
    let mut reached = BTreeSet::new();
    for seed in 0..150 {
        let log = World::new(seed).run();
        reached.extend(REACHED.into_iter().filter(|what| log.contains(what)));
    }
    let missed: Vec<_> = REACHED
        .iter()
        .filter(|what| !reached.contains(*what))
        .collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");
}

#[test]
fn the_same_seed_gives_the_same_log() {
    let hash = |seed| Sha256::digest(World::new(seed).run());
    let hashes: BTreeSet<_> = (0..20)
        .map(|seed| {
            let hash_of_first = hash(seed);
            assert_eq!(hash_of_first, hash(seed), "seed {seed}");
            hash_of_first.to_vec()
        })
        .collect();
    assert_eq!(hashes.len(), 20, "and another seed another one");
}
