//! For tests: a server in front of an engine whose model is scripted, called without a socket.
//!
//! The model's tokens are the 256 bytes and two control tokens; its template is ChatML. Where no answer is scripted it
//! answers in letters and never ends by itself.

pub(crate) mod dialogue;
pub(crate) mod written;

use std::time::Duration;

use andante_engine::fake::FakeModel;
use andante_engine::{EngineConfig, EngineHandle, EngineThread, Shutdown, TenantStatus, TextStack};
use andante_gguf::{GgufFile, GgufWriter};
use andante_text::{ChatTemplate, Tokenizer};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{Server, ServerConfig};

/// `<|im_start|>` and `<|im_end|>`, which also ends an answer.
const START: u32 = 256;
const END: u32 = 257;

const TEMPLATE: &str = "\
    {%- if tools %}<|im_start|>tools\n{% for tool in tools %}{{ tool.function.name }}\n\
    {% if tool.function.description is not string %}{{ raise_exception('a tool without a description') }}{% endif %}{% endfor %}<|im_end|>\n{% endif -%}\
    {%- for message in messages %}<|im_start|>{{ message.role }}\n\
    {% if message.reasoning_content %}{{ '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{% endif -%}\
    {{ message.content or '' }}\
    {%- for call in message.tool_calls or [] %}<tool_call>{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}</tool_call>{% endfor -%}\
    <|im_end|>\n{% endfor -%}\
    {%- if add_generation_prompt %}<|im_start|>assistant\n{% endif -%}\
    {%- if enable_thinking is defined and not enable_thinking %}no thoughts\n{% endif -%}";

/// A server whose engine ends when it is dropped.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) engine: EngineHandle,
    router: Router,
    thread: Option<EngineThread>,
}

/// What came back.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Fixture {
    /// The usual model: `conversation` is what it knows to say.
    pub(crate) fn new() -> Self {
        Self::with(conversation(), |_, _| {})
    }

    pub(crate) fn with(
        model: FakeModel,
        change: impl FnOnce(&mut EngineConfig, &mut ServerConfig),
    ) -> Self {
        let mut engine = EngineConfig {
            context: 512,
            ..EngineConfig::default()
        };
        let mut server = ServerConfig::new("fake-1");
        change(&mut engine, &mut server);
        let (handle, thread) =
            andante_engine::spawn(model.boxed(), text(), &engine).expect("an engine");
        let server = Server::new(handle.clone(), server);
        Self {
            router: server.router(),
            server,
            engine: handle,
            thread: Some(thread),
        }
    }

    pub(crate) async fn call(&self, request: Request<Body>) -> Reply {
        Reply::of(self.respond(request).await).await
    }

    /// The response as soon as it has a head.
    pub(crate) async fn respond(&self, request: Request<Body>) -> axum::response::Response {
        self.router
            .clone()
            .oneshot(request)
            .await
            .expect("the router never fails")
    }

    /// That of a request with a body.
    pub(crate) async fn open(&self, path: &str, body: &Value) -> axum::response::Response {
        self.respond(post(path, body.to_string())).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.call(Request::get(path).body(Body::empty()).expect("a request"))
            .await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.call(post(path, body.to_string())).await
    }

    pub(crate) async fn chat(&self, body: &Value) -> Reply {
        self.post("/v1/chat/completions", body).await
    }

    /// Waits until at least so many requests have ended in any way and the engine holds none.
    pub(crate) async fn idle_after(&self, ended: u64) {
        loop {
            let status = self.engine.status();
            let stats = status.scheduler;
            let idle = stats.resident == 0 && stats.queued == 0 && stats.blocks.used == 0;
            // The tenants' accounts come a little later.
            let told = |tenant: &TenantStatus| tenant.stats.resident + tenant.stats.queued == 0;
            let idle = idle && !status.tenants.is_empty() && status.tenants.iter().all(told);
            if idle && status.finished + status.failed + status.cancelled >= ended {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.engine.shutdown(Shutdown::Now);
        let ended = self.thread.take().expect("dropped once").join();
        if !std::thread::panicking() {
            ended.expect("the engine ends well");
        }
    }
}

impl Reply {
    /// Reads the body of a response, which must end.
    pub(crate) async fn of(response: axum::response::Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.expect("a body that ends");
        Self {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(body.to_vec()).expect("text"),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).expect("JSON")
    }

    /// The complaint of a refused request.
    pub(crate) fn error(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        let error = self.json()["error"].clone();
        assert!(
            error["message"].is_string() && error["type"].is_string(),
            "{}",
            self.text
        );
        error
    }

    /// The body with what differs from run to run replaced.
    pub(crate) fn redacted(&self) -> String {
        let redact = |line: &str| match line.strip_prefix("data: ").unwrap_or(line).parse::<Value>()
        {
            Ok(mut value) if value.get("id").is_some() => {
                value["id"] = json!("[id]");
                value["created"] = json!(0);
                let prefix = if line.starts_with("data: ") {
                    "data: "
                } else {
                    ""
                };
                format!("{prefix}{value}")
            }
            _ => line.to_owned(),
        };
        self.text.lines().map(redact).collect::<Vec<_>>().join("\n")
    }

    /// The events of a stream, `[DONE]` among them as a string.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data)))
            .collect()
    }
}

pub(crate) fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path)
        .header("content-type", "application/json")
        .body(body.into())
        .expect("a request")
}

pub(crate) fn user(text: &str) -> Value {
    json!([{ "role": "user", "content": text }])
}

/// A model with answers to a few users, and to plain texts.
pub(crate) fn conversation() -> FakeModel {
    let text = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let model = FakeModel::new(258).context(4096);
    let model = says(model, "hi", "Hello!");
    let model = says(model, "smile", "a🙂b");
    model.script(
        &text("one two"),
        &[text(" three").as_slice(), &[END]].concat(),
    )
}

/// A model that answers so to what somebody's message ends with.
pub(crate) fn says(model: FakeModel, user: &str, answer: &str) -> FakeModel {
    says_after(model, user, "", answer)
}

/// The same where this stands between the opening of the answer and what the model says.
pub(crate) fn says_after(model: FakeModel, user: &str, begun: &str, answer: &str) -> FakeModel {
    let mut prompt: Vec<u32> = user.bytes().map(u32::from).collect();
    prompt.push(END);
    prompt.push(u32::from(b'\n'));
    prompt.push(START);
    prompt.extend("assistant\n".bytes().chain(begun.bytes()).map(u32::from));
    let answer: Vec<u32> = answer.bytes().map(u32::from).chain([END]).collect();
    model.script(&prompt, &answer)
}

fn text() -> TextStack {
    let file = GgufFile::from_bytes(vocabulary().finish()).expect("a well-formed file");
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("a vocabulary");
    let template = ChatTemplate::from_metadata(file.metadata(), &tokenizer).expect("a template");
    TextStack::new(tokenizer, template)
}

/// Byte-level BPE without merges: every byte is a token of its own, and its id.
fn vocabulary() -> GgufWriter {
    let mut tokens: Vec<String> = byte_letters();
    tokens.extend(["<|im_start|>".to_owned(), "<|im_end|>".to_owned()]);
    let kinds: Vec<i32> = (0..tokens.len())
        .map(|id| if id < 256 { 1 } else { 3 })
        .collect();
    GgufWriter::new()
        .metadata("general.architecture", "llama")
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "default")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.token_type", kinds)
        .metadata("tokenizer.ggml.merges", Vec::<String>::new())
        .metadata("tokenizer.ggml.eos_token_id", END)
        .metadata("tokenizer.chat_template", TEMPLATE)
}

/// GPT-2's letters for the bytes: printable ones stand for themselves, the others for U+0100 onwards.
fn byte_letters() -> Vec<String> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut others = 0x100..;
    let letter = |byte: u8| {
        if printable(byte) {
            u32::from(byte)
        } else {
            others.next().expect("endless")
        }
    };
    let letters = (0..=u8::MAX).map(letter).collect::<Vec<u32>>();
    letters
        .into_iter()
        .map(|code| char::from_u32(code).expect("a letter").to_string())
        .collect()
}
