//! Spans as a collector gets them, from a receiver of bytes on this machine.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use andante_engine::{FinishReason, Timings, Usage};
use andante_server::{ErrorKind, Observed, ObservedChoice, ObservedError, Parameters};
use opentelemetry::trace::{SpanId, SpanKind, Status, TraceId, TracerProvider as _};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};

use super::{Traces, tell};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// A request that began with the epoch and took ten seconds, its answer cut.
fn observed() -> Observed {
    let at = |ms: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
    Observed {
        traceparent: Some(format!("00-{TRACE}-{CALLER}-01")),
        tracestate: Some("vendor=value".into()),
        request_id: "mine".into(),
        path: "/v1/chat/completions".into(),
        operation: "chat",
        model: Some("asked-for".into()),
        parameters: Parameters {
            max_tokens: Some(20),
            temperature: Some(0.5),
            stream: true,
            ..Parameters::default()
        },
        began: at(0),
        ended: at(10_000),
        submitted: Some(at(500)),
        choices: vec![ObservedChoice {
            reason: FinishReason::Length,
            usage: Usage {
                prompt_tokens: 100,
                cached_tokens: 64,
                completion_tokens: 20,
                reasoning_tokens: 5,
            },
            timings: Timings {
                queued_us: 1_000_000,
                prefill_us: 2_000_000,
                load_us: 250_000,
                wait_us: 500_000,
                decode_us: 4_000_000,
            },
        }],
        error: None,
    }
}

/// Keeps what it is given.
#[derive(Debug)]
struct Kept(std::sync::mpsc::Sender<SpanData>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        for span in batch {
            self.0.send(span).expect("somebody looks");
        }
        Ok(())
    }
}

/// The spans of a request, in the order in which they ended.
fn spans(observed: &Observed) -> Vec<SpanData> {
    let (kept, spans) = channel();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(Kept(kept))
        .build();
    tell(&provider.tracer("test"), "served", observed);
    drop(provider);
    spans.into_iter().collect()
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|at| at.key.as_str() == name)?;
    Some(found.value.to_string())
}

#[test]
fn a_request_is_a_child_of_its_caller_with_its_phases_below() {
    let spans = spans(&observed());
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(names, ["queue", "prefill", "decode", "chat asked-for"]);
    let request = &spans[3];
    assert_eq!(request.span_kind, SpanKind::Server);
    assert_eq!(
        request.span_context.trace_id(),
        TraceId::from_hex(TRACE).unwrap()
    );
    assert_eq!(request.parent_span_id, SpanId::from_hex(CALLER).unwrap());
    assert_eq!(
        request.span_context.trace_state().get("vendor"),
        Some("value")
    );
    for (name, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "andante"),
        ("gen_ai.request.model", "asked-for"),
        ("gen_ai.response.model", "served"),
        ("gen_ai.request.max_tokens", "20"),
        ("gen_ai.request.temperature", "0.5"),
        ("gen_ai.request.stream", "true"),
        ("gen_ai.response.finish_reasons", "[\"length\"]"),
        ("gen_ai.response.time_to_first_chunk", "3.5"),
        ("gen_ai.usage.input_tokens", "100"),
        ("gen_ai.usage.cache_read.input_tokens", "64"),
        ("gen_ai.usage.output_tokens", "20"),
        ("gen_ai.usage.reasoning.output_tokens", "5"),
        ("http.response.status_code", "200"),
        ("http.response.header.x-request-id", "mine"),
        ("url.path", "/v1/chat/completions"),
    ] {
        assert_eq!(attribute(request, name).as_deref(), Some(value), "{name}");
    }
    for absent in ["gen_ai.request.top_p", "gen_ai.request.seed", "error.type"] {
        assert_eq!(attribute(request, absent), None, "{absent}");
    }
    let ms = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        since.expect("after the epoch").as_millis()
    };
    let times: Vec<(u128, u128)> = spans
        .iter()
        .map(|span| (ms(span.start_time), ms(span.end_time)))
        .collect();
    assert_eq!(
        times,
        [(500, 1500), (1500, 3500), (3500, 7500), (0, 10_000)]
    );
    for phase in &spans[..3] {
        assert_eq!(phase.parent_span_id, request.span_context.span_id());
    }
    let prefill = &spans[1];
    for (name, value) in [("tokens", "36"), ("load", "0.25"), ("wait", "0.5")] {
        let name = format!("andante.prefill.{name}");
        assert_eq!(attribute(prefill, &name).as_deref(), Some(value), "{name}");
    }
}

#[test]
fn a_caller_who_does_not_sample_is_not_traced_and_one_without_a_trace_is() {
    let mut request = observed();
    request.traceparent = Some(format!("00-{TRACE}-{CALLER}-00"));
    assert!(spans(&request).is_empty());
    for odd in [None, Some("nonsense".to_owned())] {
        request.traceparent = odd;
        let spans = spans(&request);
        assert_eq!(spans.len(), 4);
        assert_eq!(spans[3].parent_span_id, SpanId::INVALID);
    }
}

#[test]
fn only_what_the_server_did_wrong_is_an_error_of_its_span() {
    for (kind, name, wrong) in [
        (ErrorKind::Refused(400), "400", false),
        (ErrorKind::Refused(503), "503", true),
        (ErrorKind::Cancelled, "cancelled", false),
        (ErrorKind::Failed, "failed", true),
    ] {
        let mut request = observed();
        request.choices.clear();
        request.error = Some(ObservedError {
            kind,
            message: "why".into(),
        });
        let spans = spans(&request);
        let [span] = &spans[..] else {
            panic!("one span, without phases");
        };
        assert_eq!(attribute(span, "error.type").as_deref(), Some(name));
        let expected = if wrong {
            Status::error("why")
        } else {
            Status::Unset
        };
        assert_eq!(span.status, expected, "{name}");
    }
}

/// A collector that answers these statuses, one a request; what it was sent.
fn collector(statuses: &'static [u16]) -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("it is bound"));
    let (told, requests) = channel();
    std::thread::spawn(move || {
        for status in statuses {
            let (mut stream, _) = listener.accept().expect("somebody calls");
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).expect("a head");
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).expect("text");
            let length = head.lines().find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            });
            let mut body = vec![0; length.expect("a length")];
            stream.read_exact(&mut body).expect("a body");
            write!(
                stream,
                "HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
            .expect("it listens");
            told.send((head, body)).expect("somebody looks");
        }
    });
    (address, requests)
}

#[test]
fn spans_reach_a_collector_before_the_server_has_ended() {
    let (address, requests) = collector(&[200]);
    let traces = Traces::start(&format!("{address}/")).expect("an address");
    traces.observer("served").hear(observed());
    drop(traces);
    let (head, body) = requests.try_recv().expect("it was sent");
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("content-type: application/x-protobuf"),
        "{head}"
    );
    let has = |text: &[u8]| body.windows(text.len()).any(|window| window == text);
    assert!(has(b"chat asked-for") && has(b"gen_ai.usage.output_tokens"));
}

#[test]
fn what_is_no_address_is_refused() {
    for odd in ["localhost:4318", "", "ftp://x", "http://a b"] {
        assert!(Traces::start(odd).is_err(), "{odd}");
    }
}
