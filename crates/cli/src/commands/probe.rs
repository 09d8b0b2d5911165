//! `andante probe`: what clients of any OpenAI-compatible server see, measured at the client.
//!
//! Three modes: stalls (running answers, a long prompt, a newcomer), an open loop driven by a trace, and tenants of
//! which one asks for more than its share. The server is started by whoever wants to know.

mod answer;
mod client;
mod metrics;
mod open_loop;
mod prompt;
#[cfg(test)]
mod script;
mod sse;
mod stall;
mod stall_report;
mod target;
mod tenants;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::args::ProbeArgs;
use crate::output::print;
use crate::trace;
use target::Target;

/// What a mode hands back: its result as JSON and as text, a figure, and why it is void, if it is.
struct Report {
    json: Value,
    text: String,
    svg: Option<String>,
    void: Option<String>,
}

pub(crate) fn run(args: &ProbeArgs) -> Result<()> {
    let mut target = Target::open(args)?;
    let report = match (&args.trace.trace, args.tenants.tenants) {
        (Some(path), _) => open_loop(&mut target, args, path)?,
        (None, Some(_)) => tenants(&mut target, args)?,
        (None, None) => stalls(&mut target, args)?,
    };
    if let (Some(path), Some(svg)) = (&args.svg, &report.svg) {
        write(path, svg)?;
    }
    if args.json {
        let mut json = report.json;
        json["server"] = args.url.as_str().into();
        json["requests"] = target.form().into();
        json["void"] = report.void.clone().into();
        print(format_args!("{json:#}\n"))?;
    } else {
        print(format_args!(
            "{}: {}\n\n{}",
            args.url,
            target.form(),
            report.text
        ))?;
    }
    match report.void {
        Some(why) => bail!("void: {why}"),
        None => Ok(()),
    }
}

fn stalls(target: &mut Target, args: &ProbeArgs) -> Result<Report> {
    let (mut measures, mut void, mut worst) = (Vec::new(), None, None);
    let (mut longest, mut note) = (-1.0, None);
    while measures.len() < args.stall.rounds as usize && void.is_none() {
        let round = stall::round(target, &args.stall, Duration::from_secs(args.timeout_s))?;
        note = note.or(stall_report::coalesced(&round));
        let gap = match round.measures(&args.stall) {
            Ok(measured) => {
                let gap = measured.longest_gap_ms;
                measures.push(measured);
                gap
            }
            Err(why) => {
                void = Some(format!("round {}: {why}", measures.len() + 1));
                f64::INFINITY
            }
        };
        if gap > longest {
            (longest, worst) = (gap, Some(round));
        }
    }
    let (long, short) = (args.stall.long, args.stall.short);
    let heading = format!(
        "{} answers, a prompt of {long} tokens, one of {short}",
        args.stall.victims
    );
    let draw = |round| stall_report::figure(&heading, &round);
    let svg = worst.filter(|_| args.svg.is_some()).map(draw).transpose()?;
    let mut text = format!("{heading}\n\n{}", stall_report::table(&measures));
    if let Some(note) = &note {
        text += &format!("\n{note}\n");
    }
    let mut json = json!({"mode": "stall", "victims": args.stall.victims, "long": long, "short": short, "note": note});
    let Value::Object(results) = stall_report::json(&measures) else {
        unreachable!("the report is an object");
    };
    json.as_object_mut()
        .expect("made as an object")
        .extend(results);
    Ok(Report {
        json,
        text,
        svg,
        void,
    })
}

fn open_loop(target: &mut Target, args: &ProbeArgs, path: &Path) -> Result<Report> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let load = &args.trace.load;
    let requests = trace::parse(&text, load.limit.unwrap_or(usize::MAX))
        .with_context(|| format!("{} is no trace", path.display()))?;
    let requests = trace::select(requests, load);
    let timeout = Duration::from_secs(args.timeout_s);
    let sent = open_loop::run(target, &requests, timeout)?;
    let time_scale = load.time_scale;
    let load = open_loop::Load::of(&sent, args.trace.slo);
    let svg = args
        .svg
        .is_some()
        .then(|| open_loop::figure(&sent))
        .transpose()?;
    Ok(Report {
        json: json!({"mode": "trace", "time_scale": time_scale, "load": load}),
        text: load.table(args.trace.slo),
        svg,
        void: load.void(),
    })
}

fn tenants(target: &mut Target, args: &ProbeArgs) -> Result<Report> {
    let run = tenants::run(target, &args.tenants)?;
    let svg = args
        .svg
        .is_some()
        .then(|| tenants::figure(&run))
        .transpose()?;
    let mut json =
        json!({"mode": "tenants", "seconds": args.tenants.seconds, "hog": args.tenants.hog});
    let (text, void) = match run.shares() {
        Ok(shares) => {
            json["shares"] = serde_json::to_value(&shares)?;
            (shares.table(), None)
        }
        Err(why) => (String::new(), Some(why)),
    };
    Ok(Report {
        json,
        text,
        svg,
        void,
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
