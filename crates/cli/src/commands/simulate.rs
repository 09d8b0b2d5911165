//! `andante simulate`: a trace of requests, or a recorded or watched run, under any policy in virtual time.

mod cost;
mod figures;
pub(crate) mod policy;
mod recorded;
mod reuse;
mod summary;
mod watched;
mod world;

use std::fs;

use andante_sched::{Config, CostModel, LOG_MAGIC, Replayed};
use anyhow::{Context, Result, bail};

use crate::args::{Profile, SchedulerArgs, SimulateArgs};
use crate::output::print;
use crate::trace::{self, Request};
use cost::Coefficients;
use policy::{Choice, Fixed, Kind};
use recorded::Recorded;
use reuse::Reuse;
use summary::{Reused, Slo, Summary, table};
use watched::Watched;
use world::{Machine, Ours, Plain, Run};

/// What is compared when nothing is asked for.
const COMPARISON: [Choice; 4] = [
    Choice::Ours { stall_ms: None },
    Choice::Fixed {
        kind: Kind::PrefillFirst,
        chunk: Some(8192),
    },
    Choice::Fixed {
        kind: Kind::Mixed,
        chunk: Some(2048),
    },
    Choice::Fixed {
        kind: Kind::Mixed,
        chunk: Some(512),
    },
];

/// Tokens of a KV block.
const BLOCK_TOKENS: u32 = 32;

pub(crate) fn run(args: &SimulateArgs) -> Result<()> {
    let path = args.trace.display();
    let Given {
        mut runs,
        requests,
        cost,
    } = read(args).with_context(|| format!("{path}"))?;
    let choices = match &args.policy[..] {
        [] if runs.is_empty() => &COMPARISON[..],
        choices => choices,
    };
    let mut bounds = None;
    if !choices.is_empty() {
        let requests = trace::select(requests, &args.load);
        if requests.is_empty() {
            bail!("{path}: no request is left to simulate");
        }
        let machine = machine(args, cost)?;
        for &choice in choices {
            runs.push(simulate(choice, &requests, &machine, args)?);
        }
        if may_share(args, &requests) {
            let blocks = blocks(&args.scheduler, &requests)?;
            bounds = Some(reuse::bounds(&requests, blocks));
        }
    }
    report(args, &runs, bounds.as_ref())
}

/// What is in the file.
#[derive(Default)]
struct Given {
    /// What really happened, if it tells that and somebody wants to know.
    runs: Vec<(String, Run)>,
    requests: Vec<Request>,
    /// Of the machine where it happened.
    cost: Option<Coefficients>,
}

fn read(args: &SimulateArgs) -> Result<Given> {
    let file = fs::read(&args.trace).context("cannot be read")?;
    if file.starts_with(&LOG_MAGIC) {
        let Recorded {
            replayed,
            run,
            requests,
        } = recorded::read(&file)?;
        let mut given = Given {
            requests,
            ..Given::default()
        };
        if args.replay || args.policy.is_empty() {
            given.runs.push(("recorded".to_owned(), run));
            tell_replay(args, &replayed)?;
        }
        return Ok(given);
    }
    if args.replay {
        bail!("not a scheduling log: there is nothing to replay");
    }
    let text = std::str::from_utf8(&file).context("not text")?;
    if watched::is_one(text) {
        let watched = watched::read(text)?;
        tell_watched(args, &watched)?;
        return Ok(Given {
            // Beside what policies would have done with it: that is what it is there for.
            runs: vec![("recorded".to_owned(), watched.run)],
            requests: watched.requests,
            cost: watched.cost,
        });
    }
    Ok(Given {
        requests: trace::parse(text, args.load.limit.unwrap_or(usize::MAX))?,
        ..Given::default()
    })
}

fn tell_watched(args: &SimulateArgs, watched: &Watched) -> Result<()> {
    if args.json {
        return Ok(());
    }
    if watched.missed {
        print(format_args!(
            "some of what happened is not in the timeline\n"
        ))?;
    }
    print(format_args!(
        "steps: {}, requests: {}; {} of {} prompt tokens were known from before{}\n\n",
        watched.run.steps.len(),
        watched.run.requests.len(),
        watched.cached_tokens,
        watched.prompt_tokens,
        match &args.policy[..] {
            [] => "",
            _ => ", and policies compute all of them",
        },
    ))
}

fn tell_replay(args: &SimulateArgs, replayed: &Replayed) -> Result<()> {
    if args.json {
        return Ok(());
    }
    let Replayed {
        entries,
        plans,
        steps,
        cut_bytes,
    } = replayed;
    print(format_args!(
        "{entries} entries replayed, all {plans} plans ({steps} steps) are the recorded ones\n"
    ))?;
    if *cut_bytes > 0 {
        print(format_args!(
            "the log is cut off: its last {cut_bytes} bytes are no whole entry\n"
        ))?;
    }
    print(format_args!("\n"))
}

/// `known`: the costs where the requests came from.
fn machine(args: &SimulateArgs, known: Option<Coefficients>) -> Result<Machine> {
    let asked = &args.machine;
    let cost = match (&asked.cost_from, &asked.cost, known) {
        (Some(url), _, _) => cost::fetch(url)?,
        (None, Some(name), _) => cost::named(name)?,
        (None, None, Some(known)) => known.model()?,
        (None, None, None) => cost::named("a100")?,
    };
    Ok(Machine {
        cost,
        noise_permille: u64::from(args.machine.noise) * 10,
        seed: args.machine.seed,
    })
}

/// Runs one policy; gives its name and what happened.
fn simulate(
    choice: Choice,
    requests: &[Request],
    machine: &Machine,
    args: &SimulateArgs,
) -> Result<(String, Run)> {
    let scheduler = &args.scheduler;
    Ok(match choice {
        Choice::Fixed { kind, chunk } => {
            let chunk = chunk.unwrap_or(scheduler.chunk);
            let mut server = Plain::new(Fixed::new(kind, chunk), scheduler.slots);
            let run = world::run(&mut server, requests, machine.clone());
            (format!("{kind}:{chunk}"), run)
        }
        Choice::Ours { stall_ms } => {
            let stall_ms = stall_ms.unwrap_or(scheduler.max_stall_ms);
            let cost = (!args.machine.fit).then_some(machine.cost);
            let config = configuration(scheduler, stall_ms, requests, cost)?;
            let cache = may_share(args, requests);
            let mut server = Ours::new(config, cache);
            if args.record.is_some() {
                server.record();
            }
            let run = world::run(&mut server, requests, machine.clone());
            if let Some(path) = &args.record {
                fs::write(path, server.take_log())
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
            let name = match scheduler.profile {
                Profile::Batch => "ours:batch".to_owned(),
                Profile::Interactive | Profile::Strict => format!("ours:{stall_ms}"),
            };
            (name, run)
        }
    })
}

/// Whether prompts take over what others computed.
fn may_share(args: &SimulateArgs, requests: &[Request]) -> bool {
    args.scheduler.cache && requests.iter().any(|request| request.prompt.has_content())
}

/// `cost`: the true costs, if they are known.
fn configuration(
    args: &SchedulerArgs,
    stall_ms: u32,
    requests: &[Request],
    cost: Option<CostModel>,
) -> Result<Config> {
    let base =
        Config::new(args.slots, blocks(args, requests)?, BLOCK_TOKENS).with_mode(args.mode.into());
    let config = Config {
        max_queue: u32::MAX,
        t_stall_us: u64::from(stall_ms) * 1000,
        t_idle_us: u64::from(args.max_idle_ms) * 1000,
        q_min: args.min_chunk,
        q_max: args.prefill_chunk,
        cost: cost.unwrap_or(base.cost),
        fixed_cost: cost.is_some(),
        ..base
    };
    let config = config.with_profile(args.profile.into());
    // What is asked for stands above what the profile would make of it, as in the engine.
    Ok(match args.decode_share {
        Some(percent) => config.with_decode_share(10 * percent),
        None => config,
    })
}

/// Blocks of KV memory.
fn blocks(args: &SchedulerArgs, requests: &[Request]) -> Result<u32> {
    let mut needs: Vec<u64> = requests
        .iter()
        .map(|request| u64::from(request.prompt.len()) + u64::from(request.answer))
        .map(|tokens| tokens.div_ceil(u64::from(BLOCK_TOKENS)))
        .collect();
    needs.sort_unstable_by(|a, b| b.cmp(a));
    let longest = needs.first().copied().unwrap_or(1);
    let blocks = match args.kv_tokens {
        Some(tokens) => tokens / u64::from(BLOCK_TOKENS),
        None => needs.iter().take(args.slots as usize).sum(),
    };
    let enough = |blocks: &u32| u64::from(*blocks) >= longest;
    let blocks = u32::try_from(blocks).ok().filter(enough);
    blocks.with_context(|| {
        format!(
            "--kv-tokens: the longest request needs {}",
            longest * u64::from(BLOCK_TOKENS)
        )
    })
}

fn report(args: &SimulateArgs, runs: &[(String, Run)], bounds: Option<&Reuse>) -> Result<()> {
    let slo = Slo {
        ttft_us: u64::from(args.slo.slo_ttft_ms) * 1000,
        gap_us: u64::from(args.slo.slo_gap_ms) * 1000,
    };
    let summaries: Vec<Summary> = runs
        .iter()
        .map(|(policy, run)| Summary {
            // The other policies share nothing.
            reuse: bounds
                .filter(|_| policy.starts_with("ours"))
                .map(|bounds| Reused::new(run, bounds)),
            ..Summary::new(policy, run, slo)
        })
        .collect();
    if args.json {
        print(format_args!(
            "{}\n",
            serde_json::to_string_pretty(&summaries)?
        ))?;
    } else {
        print(format_args!("{}", table(&summaries)))?;
        for summary in &summaries {
            if let Some(reuse) = &summary.reuse {
                print(format_args!("{}", reuse.line(&summary.policy)))?;
            }
        }
    }
    match &args.svg {
        Some(folder) => figures::write(folder, runs, slo.gap_us),
        None => Ok(()),
    }
}
