//! A server whose model says what a script tells it to; everything else is real: tokenizer, template, parsers, grammar,
//! scheduler, KV and HTTP. What clients and agents are tried on, since a model small enough for a test cannot plan.
//!
//! `scripted MODEL.gguf TEMPLATE.jinja SCRIPT.json [CONTEXT]` listens on a free port and says on which. The model file gives the
//! vocabulary alone. A script is a list of rules; the first that fits the prompt is followed:
//!
//! ```json
//! [{"turn": 0, "has": ["weather"], "lacks": ["sunny"], "say": "<tool_call>…"}, {"say": "Hello!"}]
//! ```
//!
//! `turn` is the number of tool results after the last message of the user, `has` and `lacks` are regular expressions that are
//! looked for in the whole prompt; each is optional. `$0` in `say` is the last match of the first `has`.

use std::sync::Arc;
use std::{env, fs};

use andante_engine::fake::FakeModel;
use andante_engine::{EngineConfig, TextStack};
use andante_gguf::GgufFile;
use andante_server::{Phase, Server, ServerConfig};
use andante_text::{ChatTemplate, Special, Tokenizer};
use regex::Regex;
use serde_json::Value;

/// How the template opens the messages that count.
const ANSWER: &str = "<|im_start|>assistant\n";
const USER: &str = "<|im_start|>user\n";
const RESULT: &str = "<|im_start|>tool\n";

type Error = Box<dyn std::error::Error>;

#[expect(
    clippy::print_stdout,
    reason = "whoever starts it reads where it listens"
)]
fn main() -> Result<(), Error> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [model, template, script, context @ ..] = &args[..] else {
        return Err("usage: scripted MODEL.gguf TEMPLATE.jinja SCRIPT.json [CONTEXT]".into());
    };
    let context = context.first().map_or(Ok(65_536), |text| text.parse())?;
    let file = GgufFile::open(model.as_ref())?;
    let tokenizer = Tokenizer::from_metadata(file.metadata())?;
    let template = ChatTemplate::new(&fs::read_to_string(template)?, &tokenizer)?;
    let text = TextStack::new(tokenizer, Some(template));
    let tokenizer = Arc::clone(&text.tokenizer);
    let script = Script::read(&fs::read_to_string(script)?)?;
    let author = {
        let tokenizer = Arc::clone(&tokenizer);
        move |sequence: &[u32]| script.next(sequence, &tokenizer)
    };
    let config = EngineConfig {
        sessions: 4,
        context,
        ..EngineConfig::default()
    };
    let model = FakeModel::new(tokenizer.vocab())
        .context(context)
        .author(author);
    let (engine, thread) = andante_engine::spawn(model.boxed(), text, &config)?;
    let server = Server::new(engine.clone(), ServerConfig::new("scripted"));
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        println!("serving on http://{}", listener.local_addr()?);
        let (_phases, phase) = tokio::sync::watch::channel(Phase::Serve);
        andante_server::serve(listener, server, phase).await;
        Ok::<_, Error>(())
    })?;
    engine.shutdown(andante_engine::Shutdown::Now);
    Ok(thread.join()?)
}

struct Script(Vec<Rule>);

struct Rule {
    turn: Option<u64>,
    has: Vec<Regex>,
    lacks: Vec<Regex>,
    say: String,
}

impl Script {
    fn read(json: &str) -> Result<Self, Error> {
        let rules: Vec<Value> = serde_json::from_str(json)?;
        let regexes = |rule: &Value, key: &str| -> Result<Vec<Regex>, Error> {
            let patterns = rule[key].as_array().map_or(&[][..], Vec::as_slice);
            let patterns = patterns.iter().map(|p| p.as_str().unwrap_or_default());
            Ok(patterns.map(Regex::new).collect::<Result<_, _>>()?)
        };
        let rule = |rule: &Value| -> Result<Rule, Error> {
            Ok(Rule {
                turn: rule["turn"].as_u64(),
                has: regexes(rule, "has")?,
                lacks: regexes(rule, "lacks")?,
                say: rule["say"]
                    .as_str()
                    .ok_or("a rule says nothing")?
                    .to_owned(),
            })
        };
        Ok(Self(rules.iter().map(rule).collect::<Result<_, _>>()?))
    }

    /// The token that follows: of the answer to the prompt, after as much of it as has been said.
    fn next(&self, sequence: &[u32], tokenizer: &Tokenizer) -> Option<u32> {
        let bytes: Vec<u8> = sequence
            .iter()
            .flat_map(|&token| tokenizer.piece(token).iter().copied())
            .collect();
        let text = String::from_utf8_lossy(&bytes);
        let (prompt, said) = text.rsplit_once(ANSWER)?;
        let answer = self.answer(prompt)?;
        let rest = answer.strip_prefix(said)?;
        if rest.is_empty() {
            return tokenizer.eos();
        }
        tokenizer.encode(rest, Special::Parse).first().copied()
    }

    fn answer(&self, prompt: &str) -> Option<String> {
        let since = prompt.rsplit_once(USER).map_or(prompt, |(_, since)| since);
        let turn = since.matches(RESULT).count() as u64;
        let fits = |rule: &&Rule| {
            rule.turn.is_none_or(|wanted| wanted == turn)
                && rule.has.iter().all(|has| has.is_match(prompt))
                && !rule.lacks.iter().any(|lacks| lacks.is_match(prompt))
        };
        let rule = self.0.iter().find(fits)?;
        let matched = rule
            .has
            .first()
            .and_then(|has| has.find_iter(prompt).last());
        Some(
            rule.say
                .replace("$0", matched.map_or("", |found| found.as_str())),
        )
    }
}
