//! `docs/metrics.md`, made from the families themselves, and that what is deployed asks for metrics that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use prometheus_client::registry::Unit;
use regex::Regex;
use serde_json::{Value, json};

use super::super::family::{Family, Labels, Samples};
use super::{families, full_status};
use crate::fixture::{Fixture, user};

const HEAD: &str = "# Metrics

Made from the code by `cargo xtask docs`; a test compares.

`GET /metrics` answers in OpenMetrics where the `Accept` header says so, as Prometheus does, and else in Prometheus' older text \
format. Reading costs the engine the copy of a few kilobytes between two steps. Where the server has API keys, a scraper needs \
one (`authorization` in Prometheus' `scrape_config`). `deploy/` has a configuration for Prometheus, alert rules and a dashboard \
for Grafana.

All counters begin at 0 with the server. Histograms have fixed buckets, listed below. Only tenants can be many: the hundred \
that were served most have samples of their own.
";

const VLLM_HEAD: &str = "
## Names of vLLM's

With `--vllm-metrics` the answer also has what llm-d and the endpoint picker of Kubernetes' gateway (its model server protocol) \
look for, under the names that they look for unless told otherwise: `vllm:num_requests_waiting`, `vllm:num_requests_running`, \
`vllm:kv_cache_usage_perc`, `vllm:cache_config_info` and `vllm:lora_requests_info`; and what autoscalers go by. They are not on \
by default since `promtool check metrics` complains about colons in names. Without it, a picker may be told to read \
`andante_sequences{state=\"queued\"}`, `andante_sequences_resident` and `andante_kv_used_ratio`.
";

/// Labels whose values are not the program's.
const OPEN: [&str; 3] = ["tenant", "status", "model_name"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every family that there can be.
async fn all() -> Vec<Family> {
    let server = Fixture::new();
    server
        .chat(&json!({"messages": user("hi"), "user": "a"}))
        .await;
    server.idle_after(1).await;
    families(&server, &full_status(&server))
}

/// As a query names it, but for what histograms append.
fn full_name(family: &Family) -> String {
    let mut name = family.name.to_string();
    if family.unit == Some(Unit::Seconds) {
        name += "_seconds";
    }
    if matches!(family.samples, Samples::Counter(_)) {
        name += "_total";
    }
    name
}

fn labels(family: &Family) -> Vec<&Labels> {
    match &family.samples {
        Samples::Counter(samples) | Samples::Gauge(samples) => {
            samples.iter().map(|(labels, _)| labels).collect()
        }
        Samples::Histogram(samples, _) => samples.iter().map(|(labels, _)| labels).collect(),
    }
}

fn page(families: &[Family]) -> String {
    let mut page = HEAD.to_owned();
    let (theirs, ours): (Vec<_>, Vec<_>) = families
        .iter()
        .partition(|family| family.name.starts_with("vllm:"));
    table(&mut page, &ours);
    page += VLLM_HEAD;
    table(&mut page, &theirs);
    page += "\n## Buckets\n\n";
    let mut buckets = BTreeMap::<String, Vec<String>>::new();
    for family in families {
        if let Samples::Histogram(samples, per_unit) = &family.samples {
            let bounds = samples[0].1.bounds().iter();
            let bounds = bounds.map(|&bound| (bound as f64 / per_unit).to_string());
            let bounds = bounds.collect::<Vec<_>>().join(", ");
            let name = format!("`{}`", full_name(family));
            buckets.entry(bounds).or_default().push(name);
        }
    }
    for (bounds, names) in buckets {
        let _ = writeln!(page, "* {}: {bounds}", names.join(", "));
    }
    page
}

fn table(page: &mut String, families: &[&Family]) {
    *page += "\n| name | kind | labels | |\n| --- | --- | --- | --- |\n";
    for family in families {
        let kind = match family.samples {
            Samples::Counter(_) => "counter",
            Samples::Gauge(_) => "gauge",
            Samples::Histogram(..) => "histogram",
        };
        let mut values = Vec::<(&str, Vec<&str>)>::new();
        for (label, value) in labels(family).into_iter().flatten() {
            let place = values.iter().position(|(name, _)| name == label);
            let place = place.unwrap_or_else(|| {
                values.push((label, Vec::new()));
                values.len() - 1
            });
            if !family.name.ends_with("_info") && !OPEN.contains(label) {
                values[place].1.push(value);
            }
        }
        let values = values.iter().map(|(label, values)| match values[..] {
            [] => format!("`{label}`"),
            _ => format!("`{label}`: {}", values.join(", ")),
        });
        let labels = values.collect::<Vec<_>>().join("; ");
        let name = full_name(family);
        let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {} |", family.help);
    }
}

#[tokio::test]
async fn the_page_in_docs_is_that_of_the_code() {
    let kept = std::fs::read_to_string(root().join("docs/metrics.md")).expect("the page");
    assert!(kept == page(&all().await), "run `cargo xtask docs`");
}

/// Writes the page anew.
#[tokio::test]
#[ignore = "writes docs/metrics.md"]
async fn write_the_page() {
    let page = page(&all().await);
    std::fs::write(root().join("docs/metrics.md"), page).expect("the page can be written");
}

/// Every name of ours in a query of the dashboard or of the alert rules.
fn asked_for(text: &str) -> BTreeSet<String> {
    let name = Regex::new(r"andante_[a-z0-9_]+").expect("a valid expression");
    let found = name.find_iter(text);
    found.map(|found| found.as_str().to_owned()).collect()
}

/// The expressions of all panels, and of the variables.
fn expressions(dashboard: &Value, found: &mut Vec<String>) {
    match dashboard {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if ["expr", "query", "definition"].contains(&&**name) => {
                        found.push(text.clone());
                    }
                    value => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn what_is_deployed_asks_for_what_there_is() {
    let mut known = BTreeSet::new();
    for family in all().await {
        let name = full_name(&family);
        if matches!(family.samples, Samples::Histogram(..)) {
            // Descriptions name the whole.
            known.extend(["", "_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}")));
        } else {
            known.insert(name);
        }
    }
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("a file of ours");
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana.json")).expect("JSON");
    let mut queries = Vec::new();
    expressions(&dashboard, &mut queries);
    assert!(queries.len() > 15, "{queries:?}");
    let rules = read("deploy/alerts.yml");
    let rules = rules.lines().map(str::trim);
    // Names of alerts and labels are written otherwise.
    let rules = rules.filter(|line| !line.starts_with('#'));
    queries.extend(rules.map(str::to_owned));
    let asked: BTreeSet<String> = queries.iter().flat_map(|query| asked_for(query)).collect();
    assert!(asked.len() > 15, "{asked:?}");
    let unknown: Vec<_> = asked.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
