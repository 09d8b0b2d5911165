//! Virtual time: requests arrive, a server plans steps, every step takes what the cost model says. No clock.

use std::collections::VecDeque;

use andante_sched::{Admission, Config, CostModel, Outcome, Plan, Scheduler, SeqId, Shape};

use super::policy::Fixed;
use crate::trace::Request;

/// A server under simulation. Requests are named by their index in the trace.
pub(crate) trait Server {
    /// A request arrives.
    fn add(&mut self, index: usize, request: &Request);
    /// Plans the next step into `step`; false if there is nothing to do.
    fn plan(&mut self, now_us: u64, step: &mut Work) -> bool;
    /// The step has run.
    fn complete(&mut self, elapsed_us: u64);
}

/// A step as far as the world sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) shape: Shape,
    /// Requests that get a token at its end.
    pub(crate) emitting: Vec<usize>,
    /// Requests with prompt tokens in it, and where those begin.
    ranges: Vec<(usize, u32)>,
}

impl Work {
    pub(crate) fn clear(&mut self) {
        self.shape = Shape::default();
        self.emitting.clear();
        self.ranges.clear();
    }

    /// A decode row after `context` tokens.
    pub(crate) fn add_row(&mut self, index: usize, context: u64) {
        self.shape.rows += 1;
        self.shape.context += context;
        self.emitting.push(index);
    }

    pub(crate) fn add_range(&mut self, index: usize, start: u32, tokens: u32, last: bool) {
        self.shape.add_range(start, tokens);
        self.ranges.push((index, start));
        if last {
            self.emitting.push(index);
        }
    }
}

/// What a request went through; times in µs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) prompt: u32,
    /// Prompt tokens that it took over; `None` before it begins.
    pub(crate) cached: Option<u32>,
    pub(crate) arrival_us: u64,
    /// From arrival to the first token; `None`: it never came.
    pub(crate) ttft_us: Option<u64>,
    /// When its newest token came.
    last_us: u64,
    pub(crate) max_gap_us: u64,
    pub(crate) tokens: u32,
}

/// A step that has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) start_us: u64,
    pub(crate) elapsed_us: u64,
    pub(crate) rows: u32,
    pub(crate) prefill: u32,
}

/// Everything that happened in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) requests: Vec<Served>,
    /// Times between neighbouring tokens of a request, µs, of all requests.
    pub(crate) gaps_us: Vec<u64>,
    pub(crate) steps: Vec<Ran>,
    pub(crate) end_us: u64,
    /// Start and end of the longest gap.
    pub(crate) longest_gap: (u64, u64),
}

impl Run {
    pub(crate) fn arrive(&mut self, arrival_us: u64, prompt: u32) {
        self.requests.push(Served {
            prompt,
            arrival_us,
            ..Served::default()
        });
    }

    /// The client of a request reads again: that it did not is nobody's gap.
    pub(crate) fn resume(&mut self, index: usize, now_us: u64) {
        self.requests[index].last_us = now_us;
    }

    /// A token of a request comes at `now_us`.
    pub(crate) fn emit(&mut self, index: usize, now_us: u64) {
        let request = &mut self.requests[index];
        request.tokens += 1;
        let last_us = std::mem::replace(&mut request.last_us, now_us);
        if request.ttft_us.is_none() {
            request.ttft_us = Some(now_us.saturating_sub(request.arrival_us));
            return;
        }
        let gap_us = now_us.saturating_sub(last_us);
        request.max_gap_us = request.max_gap_us.max(gap_us);
        self.gaps_us.push(gap_us);
        if gap_us > self.longest_gap.1 - self.longest_gap.0 {
            self.longest_gap = (last_us, now_us);
        }
    }
}

/// How long steps really take.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) cost: CostModel,
    /// Largest deviation of a step's time, permille; below 1000.
    pub(crate) noise_permille: u64,
    /// Start of the random numbers; not 0.
    pub(crate) seed: u64,
}

impl Machine {
    fn elapsed_us(&mut self, shape: Shape) -> u64 {
        let exact = self.cost.step_us(shape).max(1).cast_unsigned();
        if self.noise_permille == 0 {
            return exact;
        }
        // xorshift64* (Vigna 2014).
        self.seed ^= self.seed >> 12;
        self.seed ^= self.seed << 25;
        self.seed ^= self.seed >> 27;
        let random = self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        let factor = 1000 - self.noise_permille + random % (2 * self.noise_permille + 1);
        (exact * factor / 1000).max(1)
    }
}

/// Runs until every request is served.
pub(crate) fn run(server: &mut dyn Server, requests: &[Request], mut machine: Machine) -> Run {
    let mut run = Run::default();
    let mut step = Work::default();
    let (mut now_us, mut next) = (0, 0);
    loop {
        while next < requests.len() && requests[next].arrival_us <= now_us {
            run.arrive(requests[next].arrival_us, requests[next].prompt.len());
            server.add(next, &requests[next]);
            next += 1;
        }
        if server.plan(now_us, &mut step) {
            let elapsed_us = machine.elapsed_us(step.shape);
            run.steps.push(Ran {
                start_us: now_us,
                elapsed_us,
                rows: step.shape.rows,
                // A step's tokens are counted in 32 bits.
                prefill: step.shape.tokens as u32,
            });
            now_us += elapsed_us;
            server.complete(elapsed_us);
            for &(index, start) in &step.ranges {
                run.requests[index].cached.get_or_insert(start);
            }
            for &index in &step.emitting {
                run.emit(index, now_us);
            }
        } else if next < requests.len() {
            now_us = requests[next].arrival_us;
        } else {
            break;
        }
    }
    run.end_us = now_us;
    run
}

/// A server with one of the fixed policies: slots in order of arrival, no prefix cache.
pub(crate) struct Plain {
    policy: Fixed,
    slots: usize,
    waiting: VecDeque<Live>,
    /// In order of admission.
    residents: Vec<Live>,
    /// Scratch: what is left of the prompts, and whose it is.
    remaining: Vec<u32>,
    owners: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Live {
    index: usize,
    prompt: u32,
    answer: u32,
    computed: u32,
    tokens: u32,
    /// Prompt tokens in the step under way.
    part: u32,
    /// It gets a token at the step's end.
    emits: bool,
}

impl Plain {
    pub(crate) fn new(policy: Fixed, slots: u32) -> Self {
        Self {
            policy,
            slots: slots as usize,
            waiting: VecDeque::new(),
            residents: Vec::new(),
            remaining: Vec::new(),
            owners: Vec::new(),
        }
    }
}

impl Server for Plain {
    fn add(&mut self, index: usize, request: &Request) {
        self.waiting.push_back(Live {
            index,
            prompt: request.prompt.len(),
            answer: request.answer,
            computed: 0,
            tokens: 0,
            part: 0,
            emits: false,
        });
    }

    fn plan(&mut self, _now_us: u64, step: &mut Work) -> bool {
        step.clear();
        while self.residents.len() < self.slots
            && let Some(live) = self.waiting.pop_front()
        {
            self.residents.push(live);
        }
        self.remaining.clear();
        self.owners.clear();
        for (owner, live) in self.residents.iter().enumerate() {
            if live.computed < live.prompt {
                self.remaining.push(live.prompt - live.computed);
                self.owners.push(owner);
            }
        }
        let decoders = self.residents.len() - self.owners.len();
        // At most as many as slots.
        let turn = self.policy.plan(&self.remaining, decoders as u32);
        for live in &mut self.residents {
            live.emits = turn.decode && live.computed == live.prompt;
            if live.emits {
                step.add_row(live.index, u64::from(live.prompt + live.tokens));
            }
        }
        for &(prompt, tokens) in &turn.parts {
            let live = &mut self.residents[self.owners[prompt]];
            live.part = tokens;
            live.emits = live.computed + tokens == live.prompt;
            step.add_range(live.index, live.computed, tokens, live.emits);
        }
        turn.decode || !turn.parts.is_empty()
    }

    fn complete(&mut self, _elapsed_us: u64) {
        for live in &mut self.residents {
            live.computed += std::mem::take(&mut live.part);
            live.tokens += u32::from(std::mem::take(&mut live.emits));
        }
        self.residents.retain(|live| live.tokens < live.answer);
    }
}

/// Andante's own scheduler.
pub(crate) struct Ours {
    scheduler: Scheduler,
    cache: bool,
    step_no: u64,
    outcomes: Vec<Outcome>,
}

/// What every generated token is: no trace has it in a prompt, since none tells what answers were.
const GENERATED: u32 = u32::MAX;

impl Ours {
    /// `cache`: whether prompts may share what is computed.
    pub(crate) fn new(config: Config, cache: bool) -> Self {
        Self {
            scheduler: Scheduler::new(config),
            cache,
            step_no: 0,
            outcomes: Vec::new(),
        }
    }

    /// Records the run, from before its first request.
    pub(crate) fn record(&mut self) {
        self.scheduler.record(true);
    }

    /// What was recorded.
    pub(crate) fn take_log(&mut self) -> Vec<u8> {
        let mut log = Vec::new();
        self.scheduler.take_log(&mut log);
        log
    }
}

impl Server for Ours {
    fn add(&mut self, index: usize, request: &Request) {
        let prompt = if self.cache {
            request.prompt.tokens()
        } else {
            vec![0; request.prompt.len() as usize]
        };
        let admission = Admission {
            cache: self.cache,
            tenant: request.tenant,
            priority: request.priority,
            ..Admission::new(index as SeqId, &prompt, request.answer)
        };
        self.scheduler
            .add(admission)
            .expect("there is room for every request of the trace");
    }

    fn plan(&mut self, now_us: u64, work: &mut Work) -> bool {
        work.clear();
        // Nobody is ever busy here, so that there is nothing to wait for.
        let Plan::Step(_) = self.scheduler.plan(now_us) else {
            return false;
        };
        let step = self.scheduler.in_flight().expect("just planned");
        self.step_no = step.step_no;
        self.outcomes.clear();
        for &id in &step.decode {
            let context = self.scheduler.tokens(id).map_or(0, <[u32]>::len);
            work.add_row(id as usize, context as u64);
            self.outcomes.push(Outcome::Token(GENERATED));
        }
        for range in &step.prefill {
            work.add_range(range.id as usize, range.start, range.tokens, range.last);
            self.outcomes.push(if range.last {
                Outcome::Token(GENERATED)
            } else {
                Outcome::Prefilled
            });
        }
        true
    }

    fn complete(&mut self, elapsed_us: u64) {
        self.scheduler
            .complete(self.step_no, elapsed_us, &self.outcomes)
            .expect("the step just planned");
    }
}

#[cfg(test)]
mod tests;
