//! The names under which load balancers look for what a server of vLLM's kind says: llm-d and the endpoint picker of
//! Kubernetes' gateway (its "model server protocol"), whose settings may name other metrics but need not.
//!
//! What they mean is what vLLM means by them, where there is such a thing here: running is all that hold KV memory, usage
//! counts the blocks that requests hold and not those kept as cache. There are no adapters, and that is said too. Not on
//! unless asked for: by Prometheus' rules no name has a colon, and a linter complains.

use std::borrow::Cow;

use prometheus_client::registry::Unit;

use super::Source;
use super::family::{Family, Samples};

pub(super) fn families(source: &Source<'_>) -> Vec<Family> {
    let mut families = load(source);
    families.extend(service(source));
    for family in &mut families {
        family.samples.label("model_name", source.model);
    }
    families
}

/// What an endpoint picker goes by.
fn load(source: &Source<'_>) -> Vec<Family> {
    let status = source.status;
    let stats = &status.scheduler;
    let blocks = stats.blocks;
    let usage = f64::from(blocks.used) / f64::from(blocks.total.max(1));
    let (block_size, total) = (status.block_tokens.to_string(), blocks.total.to_string());
    let cache = Samples::info([("block_size", &block_size), ("num_gpu_blocks", &total)]);
    let adapters = Samples::info([
        ("max_lora", "0"),
        ("running_lora_adapters", ""),
        ("waiting_lora_adapters", ""),
    ]);
    vec![
        named(
            "num_requests_running",
            "Requests that hold KV memory",
            Samples::value(stats.resident.into()),
        ),
        named(
            "num_requests_waiting",
            "Requests that wait for a slot",
            Samples::value(stats.queued.into()),
        ),
        named(
            "kv_cache_usage_perc",
            "KV blocks that requests hold, over all: 1 is all of them",
            Samples::value(usage),
        ),
        named(
            "cache_config_info",
            "Always 1; tokens of a KV block, and how many blocks there are, on whatever device",
            cache,
        ),
        named(
            "lora_requests_info",
            "Always 1; says that there are no adapters",
            adapters,
        ),
    ]
}

/// What autoscalers and dashboards go by.
fn service(source: &Source<'_>) -> Vec<Family> {
    let status = source.status;
    let times = &status.latencies;
    let finished = [
        ("stop", status.finished - status.cut),
        ("length", status.cut),
    ];
    let seconds = |name, help, histogram| Family {
        unit: Some(Unit::Seconds),
        ..named(name, help, Samples::durations(histogram))
    };
    vec![
        named(
            "prefix_cache_queries",
            "Tokens of the prompts that are complete",
            Samples::count(status.prompt_tokens),
        ),
        named(
            "prefix_cache_hits",
            "Those of them that were found in memory or in the store",
            Samples::count(status.cached_tokens),
        ),
        named(
            "prompt_tokens",
            "Tokens of the prompts that are complete",
            Samples::count(status.prompt_tokens),
        ),
        named(
            "generation_tokens",
            "Tokens generated",
            Samples::count(status.generated_tokens),
        ),
        named(
            "request_success",
            "Answered requests",
            Samples::counts("finished_reason", finished),
        ),
        named(
            "request_prompt_tokens",
            "Tokens of the prompts of answered requests",
            Samples::sizes(times.prompt_tokens),
        ),
        named(
            "request_generation_tokens",
            "Tokens of answers",
            Samples::sizes(times.answer_tokens),
        ),
        seconds(
            "time_to_first_token",
            "From a request's arrival to its first token",
            times.first_token,
        ),
        seconds(
            "inter_token_latency",
            "Between two tokens of an answer",
            times.gap,
        ),
        seconds(
            "e2e_request_latency",
            "From a request's arrival to the end of its answer",
            times.whole,
        ),
    ]
}

fn named(name: &str, help: &'static str, samples: Samples) -> Family {
    Family {
        name: Cow::Owned(format!("vllm:{name}")),
        help,
        unit: None,
        samples,
    }
}
