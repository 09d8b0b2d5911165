//! What a collector of metrics reads.

mod docs;

use andante_engine::{Failure, StallLimit, Status, StoreStats, TenantStatus};
use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use super::family::{Family, Samples};
use super::{Format, Source, ours, vllm, write};
use crate::fixture::{Fixture, Reply, conversation, user};

/// The value of a line that begins with `name`, which says all of its labels.
fn value(page: &str, name: &str) -> f64 {
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("no {name} in {page}"));
    line.parse().expect("a number")
}

/// All families, of `status` and with everything that may be there.
fn families(server: &Fixture, status: &Status) -> Vec<Family> {
    let source = Source {
        status,
        info: server.engine.info(),
        model: "fake-1",
        refusals: [(429, 2)].into(),
    };
    let mut families = ours::families(&source);
    families.extend(vllm::families(&source));
    families
}

fn render(server: &Fixture, status: &Status) -> String {
    write(families(server, status), Format::Prometheus)
}

/// The status of an engine of which everything is known that can be.
fn full_status(server: &Fixture) -> Status {
    let mut status = server.engine.status();
    status.scheduler.stall_kept = Some((150_000, StallLimit::Floor));
    status.store = Some(StoreStats {
        loaded_blocks: 1,
        absent: 2,
        damaged: 3,
        foreign: 4,
        unreadable: 5,
        saved_blocks: 6,
        deduplicated: 7,
        unsaved: 8,
        evicted: 9,
        read_bytes: 10,
        written_bytes: 11,
        blocks: 12,
        used_bytes: 13,
        budget_bytes: 14,
    });
    status
}

async fn scrape(server: &Fixture, accept: &str) -> Reply {
    let request = Request::get("/metrics").header("accept", accept);
    let request = request.body(Body::empty()).expect("a request");
    server.call(request).await
}

#[tokio::test]
async fn metrics_count_requests_tokens_and_steps() {
    let server = Fixture::with(conversation(), |engine, _| {
        engine.sessions = 1;
        engine.max_queue = 0;
    });
    let body = json!({"messages": user("hi"), "temperature": 0, "user": "a \"quoted\" one"});
    server.chat(&body).await;
    let short = json!({"messages": user("go"), "max_tokens": 2, "user": "another"});
    server.chat(&short).await;
    let endless = json!({"messages": user("go on"), "stream": true, "ignore_eos": true});
    let running = server.open("/v1/chat/completions", &endless).await;
    server.chat(&body).await.error(429);
    server.chat(&json!({"messages": 1})).await.error(400);
    drop(running);
    server.idle_after(3).await;
    let page = server.get("/metrics").await.text;
    assert_eq!(value(&page, "andante_ready"), 1.0);
    for (outcome, count) in [
        ("stop", 1.0),
        ("length", 1.0),
        ("cancelled", 1.0),
        ("queue_full", 1.0),
        ("model_failed", 0.0),
    ] {
        let name = format!("andante_requests_total{{outcome=\"{outcome}\"}}");
        assert_eq!(value(&page, &name), count, "{outcome}");
    }
    for status in ["429", "400"] {
        let name = format!("andante_http_refusals_total{{status=\"{status}\"}}");
        assert_eq!(value(&page, &name), 1.0);
    }
    // Hello! and the end token; the first comes from the prompt's pass.
    assert!(value(&page, "andante_tokens_total{kind=\"decode\"}") >= 7.0);
    // <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n and the other prompts, less what they share.
    assert!(value(&page, "andante_tokens_total{kind=\"prefill\"}") >= 21.0);
    let steps = |kind| {
        value(
            &page,
            &format!("andante_step_seconds_count{{kind=\"{kind}\"}}"),
        )
    };
    assert!(steps("decode") >= 7.0 && steps("prefill") >= 2.0);
    let all = "andante_step_seconds_bucket{kind=\"decode\",le=\"+Inf\"}";
    assert_eq!(value(&page, all), steps("decode"));
    let ratios = value(&page, "andante_step_time_ratio_count");
    assert_eq!(ratios, steps("decode") + steps("prefill") + steps("mixed"));
    assert_eq!(value(&page, "andante_longest_gap_seconds_count"), 2.0);
    // One less than there are tokens of the two answers, and of the third as many as it had.
    assert!(value(&page, "andante_token_gap_seconds_count") >= 7.0);
    assert_eq!(value(&page, "andante_request_answer_tokens_sum"), 7.0 + 2.0);
    assert_eq!(value(&page, "andante_request_seconds_count"), 2.0);
    assert_eq!(value(&page, "andante_stall_bound_asked_seconds"), 0.1);
    let blocks = ["used", "cached", "free"];
    let blocks =
        blocks.map(|state| value(&page, &format!("andante_kv_blocks{{state=\"{state}\"}}")));
    assert_eq!(blocks.iter().sum::<f64>(), 512.0 / 16.0);
    assert_eq!(blocks[0], 0.0);
    let tenant = "{tenant=\"a \\\"quoted\\\" one\"}";
    let service = format!("andante_tenant_service_seconds_total{tenant}");
    assert!(value(&page, &service) >= 0.0);
    let resident = format!("andante_tenant_resident{tenant}");
    assert_eq!(value(&page, &resident), 0.0);
    assert!(!page.contains("vllm"), "only where they are asked for");
}

#[tokio::test]
async fn the_parts_of_first_tokens_sum_up() {
    let server = Fixture::new();
    for text in ["hi", "smile", "hi"] {
        server.chat(&json!({"messages": user(text)})).await;
    }
    server.idle_after(3).await;
    let page = server.get("/metrics").await.text;
    let parts = ["queue", "load", "prefill", "wait"];
    let sum = |part| {
        value(
            &page,
            &format!("andante_first_token_part_seconds_sum{{part=\"{part}\"}}"),
        )
    };
    let whole = value(&page, "andante_first_token_seconds_sum");
    assert!(
        (parts.map(sum).iter().sum::<f64>() - whole).abs() < 1e-9,
        "{page}"
    );
    assert!(sum("prefill") > 0.0);
    assert_eq!(value(&page, "andante_first_token_seconds_count"), 3.0);
    // All tokens of prompts were found or missed for a reason.
    let missed = ["new", "evicted", "state", "tail", "off"];
    let missed = missed.map(|reason| {
        value(
            &page,
            &format!("andante_prompt_tokens_missed_total{{reason=\"{reason}\"}}"),
        )
    });
    let found = value(&page, "andante_prompt_tokens_found_total");
    let prompts = value(&page, "andante_prompt_tokens_total");
    assert_eq!(found + missed.iter().sum::<f64>(), prompts);
    assert!(found > 0.0 && missed[0] > 0.0);
}

#[tokio::test]
async fn whoever_accepts_open_metrics_gets_it() {
    let server = Fixture::new();
    let accept = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5";
    let open = scrape(&server, accept).await;
    assert_eq!(
        open.headers["content-type"],
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert!(open.text.ends_with("# EOF\n"));
    assert!(open.text.contains("# UNIT andante_step_seconds seconds\n"));
    let plain = scrape(&server, "text/plain").await;
    assert_eq!(
        plain.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    assert!(!plain.text.contains("EOF"));
    assert!(plain.text.contains("# TYPE andante_tokens_total counter\n"));
}

#[tokio::test]
async fn a_store_has_its_counters_and_an_engine_without_one_has_not() {
    let server = Fixture::new();
    assert!(!render(&server, &server.engine.status()).contains("kv_store"));
    let page = render(&server, &full_status(&server));
    let kept = "andante_stall_bound_kept_seconds{limit=\"floor\"}";
    assert_eq!(value(&page, kept), 0.15);
    for (name, label, expected) in [
        ("blocks", "event=\"loaded\"", 1.0),
        ("misses", "reason=\"absent\"", 2.0),
        ("misses", "reason=\"damaged\"", 3.0),
        ("misses", "reason=\"foreign\"", 4.0),
        ("misses", "reason=\"unreadable\"", 5.0),
        ("blocks", "event=\"saved\"", 6.0),
        ("blocks", "event=\"deduplicated\"", 7.0),
        ("blocks", "event=\"unsaved\"", 8.0),
        ("blocks", "event=\"evicted\"", 9.0),
        ("moved_bytes", "direction=\"read\"", 10.0),
        ("moved_bytes", "direction=\"written\"", 11.0),
    ] {
        let name = format!("andante_kv_store_{name}_total{{{label}}}");
        assert_eq!(value(&page, &name), expected, "{name}");
    }
    assert_eq!(value(&page, "andante_kv_store_held_blocks"), 12.0);
    assert_eq!(value(&page, "andante_kv_store_used_bytes"), 13.0);
    assert_eq!(value(&page, "andante_kv_store_budget_bytes"), 14.0);
}

#[tokio::test]
async fn an_endpoint_picker_finds_the_names_that_it_knows() {
    let server = Fixture::with(conversation(), |engine, server| {
        engine.sessions = 1;
        server.vllm_metrics = true;
    });
    let endless = json!({"messages": user("go on"), "stream": true, "ignore_eos": true});
    let running = server.open("/v1/chat/completions", &endless).await;
    let waiting = server.open("/v1/chat/completions", &endless).await;
    loop {
        let stats = server.engine.status().scheduler;
        if (stats.resident, stats.queued) == (1, 1) && stats.blocks.used > 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let page = server.get("/metrics").await.text;
    let own = |name| value(&page, &format!("vllm:{name}{{model_name=\"fake-1\"}}"));
    assert_eq!(own("num_requests_running"), 1.0);
    assert_eq!(own("num_requests_waiting"), 1.0);
    assert_eq!(
        own("kv_cache_usage_perc"),
        value(&page, "andante_kv_used_ratio")
    );
    assert!(own("kv_cache_usage_perc") > 0.0);
    let cache =
        "vllm:cache_config_info{model_name=\"fake-1\",block_size=\"16\",num_gpu_blocks=\"32\"}";
    assert_eq!(value(&page, cache), 1.0);
    let adapters = "vllm:lora_requests_info{model_name=\"fake-1\",max_lora=\"0\",\
                    running_lora_adapters=\"\",waiting_lora_adapters=\"\"}";
    assert_eq!(value(&page, adapters), 1.0);
    drop((running, waiting));
}

#[tokio::test]
async fn tenants_beyond_the_hundred_that_were_served_most_are_not_told_apart() {
    let server = Fixture::new();
    server
        .chat(&json!({"messages": user("hi"), "user": "a"}))
        .await;
    server.idle_after(1).await;
    let mut status = server.engine.status();
    let template = status.tenants[0].clone();
    status.tenants = (0..5000_u64)
        .map(|index| {
            let mut stats = template.stats;
            stats.tenant = index;
            stats.service_us = 1_000_000 * index;
            let name = format!("tenant {index}\n\"\\").into();
            TenantStatus { name, stats }
        })
        .collect();
    let page = render(&server, &status);
    let shown = page
        .matches("\nandante_tenant_service_seconds_total{")
        .count();
    assert_eq!(shown, ours::MOST_TENANTS);
    assert_eq!(value(&page, "andante_tenants"), 5000.0);
    let name = "andante_tenant_service_seconds_total{tenant=\"tenant 4999\\n\\\"\\\\\"}";
    assert_eq!(value(&page, name), 4999.0);
    assert!(!page.contains("tenant 4899\\n"));
    assert!(page.len() < 100_000, "{} bytes", page.len());
}

#[test]
fn every_failure_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = Failure::ALL.map(ours::failure_name).into();
    assert_eq!(names.len(), Failure::ALL.len());
}

/// The number of a family's samples.
fn samples(family: &Family) -> usize {
    match &family.samples {
        Samples::Counter(samples) | Samples::Gauge(samples) => samples.len(),
        Samples::Histogram(samples, _) => samples.len(),
    }
}

#[tokio::test]
async fn families_have_names_of_their_own_and_samples() {
    let server = Fixture::new();
    server.chat(&json!({"messages": user("hi")})).await;
    server.idle_after(1).await;
    let families = families(&server, &full_status(&server));
    let names: std::collections::BTreeSet<_> = families.iter().map(|family| &family.name).collect();
    assert_eq!(names.len(), families.len());
    for family in &families {
        assert!(samples(family) > 0, "{}", family.name);
        assert!(!family.help.is_empty() && !family.help.ends_with('.'));
    }
}
