//! Answers to conversations: reasoning and calls told apart, thinking that ends in time, and prompts that repeat what was sampled.

use std::collections::HashSet;

use andante_text::{ChatRequest, Part, ToolCall, ToolChoice};

use super::*;
use crate::store::Secret;

/// The vocabulary: the 256 bytes, then these.
const SPECIAL: [(&str, i32); 6] = [
    ("<|im_start|>", 3),
    ("<|im_end|>", 3),
    ("<think>", 4),
    ("</think>", 4),
    ("<tool_call>", 4),
    ("</tool_call>", 4),
];
const VOCAB: usize = 256 + SPECIAL.len();

const TEMPLATE: &str = "\
    {%- if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif -%}\
    {%- for message in messages -%}\
    <|im_start|>{{ message.role }}\n\
    {%- if message.reasoning_content %}{{ '\n<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{% else %}{{ '\n' }}{% endif -%}\
    {{ message.content or '' }}\
    {%- for call in message.tool_calls or [] %}{{ '\n<tool_call>\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' + (call.function.arguments | tojson) + '}\n</tool_call>' }}{% endfor -%}\
    <|im_end|>\n{% endfor -%}\
    {%- if add_generation_prompt %}<|im_start|>assistant\n{% endif -%}";

fn text() -> TextStack {
    let printable = |byte: &u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = 0x100..;
    let mut letter = |byte: u32| {
        if printable(&byte) {
            byte
        } else {
            others.next().expect("endless")
        }
    };
    let mut tokens: Vec<String> = (0..256)
        .map(|byte| {
            char::from_u32(letter(byte))
                .expect("Latin letters")
                .to_string()
        })
        .collect();
    tokens.extend(SPECIAL.map(|(text, _)| text.to_owned()));
    let mut kinds = vec![1; 256];
    kinds.extend(SPECIAL.map(|(_, kind)| kind));
    let file = GgufWriter::new()
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "default")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.token_type", kinds)
        .metadata("tokenizer.ggml.merges", Vec::<String>::new())
        .metadata("tokenizer.ggml.eos_token_id", 257_u32)
        .metadata("tokenizer.ggml.add_bos_token", false)
        .metadata("tokenizer.chat_template", TEMPLATE)
        .finish();
    let file = GgufFile::from_bytes(file).expect("a file just written");
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("a vocabulary");
    let template = ChatTemplate::from_metadata(file.metadata(), &tokenizer).expect("a template");
    TextStack::new(tokenizer, template)
}

/// The tokens of a text whose special tokens are spelt out.
fn tokens(text: &str) -> Vec<u32> {
    let (mut rest, mut tokens) = (text, Vec::new());
    while let Some(&byte) = rest.as_bytes().first() {
        let special = (256..)
            .zip(SPECIAL)
            .find(|(_, (spelling, _))| rest.starts_with(spelling));
        if let Some((id, (spelling, _))) = special {
            tokens.push(id);
            rest = &rest[spelling.len()..];
        } else {
            assert!(byte.is_ascii(), "the tests' texts are ASCII");
            tokens.push(u32::from(byte));
            rest = &rest[1..];
        }
    }
    tokens
}

/// A model that says the second after the first.
fn model(says: &[(&str, &str)]) -> FakeModel {
    says.iter()
        .fold(FakeModel::new(VOCAB), |model, (after, says)| {
            model.script(&tokens(after), &tokens(says))
        })
}

fn rig(model: FakeModel, context: u32) -> Rig {
    rig_with(model, context, |_| {})
}

fn rig_with(model: FakeModel, context: u32, change: impl FnOnce(&mut EngineConfig)) -> Rig {
    let mut config = EngineConfig {
        sessions: 2,
        context,
        cache_tokens: context,
        ring_events: 4096,
        ..small()
    };
    change(&mut config);
    let clock = Arc::new(VirtualClock::default());
    let (engine, handle) = Engine::new(
        model.context(context).boxed(),
        text(),
        &config,
        Arc::clone(&clock) as Arc<dyn Clock>,
    )
    .expect("the configuration is valid");
    Rig {
        engine,
        handle,
        clock,
    }
}

fn chat(messages: Vec<Message>) -> ChatRequest {
    let tool = r#"{"type": "function", "function": {"name": "read", "description": "", "parameters": {}}}"#;
    ChatRequest {
        messages,
        tools: vec![tool.parse().expect("JSON")],
        add_generation_prompt: true,
        ..ChatRequest::default()
    }
}

/// An answer's parts, why it ended and what it took.
fn ask(rig: &mut Rig, chat: &ChatRequest, sampling: Sampling) -> (Vec<Part>, FinishReason, Usage) {
    let request = rig
        .handle
        .prepare_chat(chat, sampling)
        .expect("a valid request");
    let mut stream = rig.handle.submit(request).expect("room");
    if rig.engine.store.is_some() {
        on_disk::rest(rig);
    } else {
        rig.settle();
    }
    let mut parts = Vec::new();
    loop {
        match stream.try_recv().expect("an end") {
            Event::Token(delta) => delta
                .parts
                .into_iter()
                .for_each(|part| part.append_to(&mut parts)),
            Event::Finished { reason, usage, .. } => return (parts, reason, usage),
            Event::Progress(_) | Event::Started { .. } | Event::Embedding(_) => {}
            Event::Failed(failure) => panic!("{failure}"),
        }
    }
}

fn go() -> ChatRequest {
    chat(vec![Message::new(Role::User, "go")])
}

const GO: &str = "go<|im_end|>\n<|im_start|>assistant\n";
const CALL: &str = "<tool_call>{\"name\": \"read\", \"arguments\": {\"n\":  1}}</tool_call>";
const STOP: FinishReason = FinishReason::Stop { sequence: None };

fn show(parts: &[Part]) -> String {
    let show = |part: &Part| match part {
        Part::Text(text) => format!("t({text})"),
        Part::Reasoning(text) => format!("r({text})"),
        Part::Call { name, .. } => format!("c({name})"),
        Part::Arguments(text) => format!("a({text})"),
    };
    parts.iter().map(show).collect::<Vec<_>>().join(" ")
}

#[test]
fn an_answer_comes_in_parts_and_calls_have_ids_of_their_own() {
    let answer = format!("<think>\nHm.\n</think>\n\nI look.\n{CALL}{CALL}<|im_end|>");
    let mut rig = rig(model(&[(GO, &answer)]), 1024);
    let mut ids = HashSet::new();
    for _ in 0..2 {
        let (parts, reason, usage) = ask(&mut rig, &go(), Sampling::greedy());
        let call = "c(read) a({\"n\":  1})";
        assert_eq!(show(&parts), format!("r(Hm.) t(I look.) {call} {call}"));
        assert_eq!(reason, STOP);
        // The two tags and what is between them.
        assert_eq!(usage.reasoning_tokens, 7);
        for part in parts {
            if let Part::Call { id, .. } = part {
                let random = id.strip_prefix("call_").expect("a prefix");
                assert_eq!(random.len(), 24);
                assert!(random.bytes().all(|byte| byte.is_ascii_hexdigit()));
                ids.insert(id);
            }
        }
    }
    assert_eq!(ids.len(), 4);
}

#[test]
fn without_tools_or_with_none_allowed_a_call_is_text() {
    let answer = format!("{CALL}<|im_end|>");
    let mut rig = rig(model(&[(GO, &answer)]), 1024);
    let mut none = go();
    none.tool_choice = ToolChoice::None;
    let mut without = go();
    without.tools.clear();
    let prompts: Vec<String> = [&none, &without]
        .map(|chat| rig.handle.render(chat).unwrap().text())
        .into();
    assert_eq!(prompts[0], prompts[1]);
    for chat in [none, without] {
        let (parts, ..) = ask(&mut rig, &chat, Sampling::greedy());
        assert_eq!(show(&parts), format!("t({CALL})"));
    }
}

#[test]
fn a_model_that_stops_while_it_thinks_is_made_to_answer() {
    let closed = "\n</think>\n\n";
    let mut first = rig(
        model(&[(GO, "<think>Hm.<|im_end|>"), (closed, "Yes.<|im_end|>")]),
        1024,
    );
    let (parts, reason, usage) = ask(&mut first, &go(), Sampling::greedy());
    assert_eq!(show(&parts), "r(Hm.) t(Yes.)");
    assert_eq!(reason, STOP);
    assert_eq!(usage.completion_tokens, 4 + 4 + 4 + 1);
    // It will not say anything even so: the next token is another than the end.
    let mut second = rig(
        model(&[(GO, "<think>Hm.<|im_end|>"), (closed, "<|im_end|>")]),
        1024,
    );
    let (parts, ..) = ask(&mut second, &go(), greedy(12));
    let [Part::Reasoning(thought), Part::Text(text)] = &parts[..] else {
        panic!("an answer of two parts, not {parts:?}");
    };
    assert!(thought == "Hm." && !text.is_empty());
}

#[test]
fn a_budget_ends_thinking_and_the_answer_follows() {
    let says = [
        (GO, "<think>One two three four."),
        ("\n</think>\n\n", "Yes.<|im_end|>"),
    ];
    for (budget, thought) in [(0, None), (4, Some("One")), (8, Some("One two"))] {
        let mut rig = rig(model(&says), 1024);
        let sampling = Sampling {
            reasoning_budget: Some(budget),
            ..Sampling::greedy()
        };
        let (parts, reason, _) = ask(&mut rig, &go(), sampling);
        let thought = thought.map_or(String::new(), |text| format!("r({text}) "));
        assert_eq!(show(&parts), format!("{thought}t(Yes.)"));
        assert_eq!(reason, STOP);
    }
}

#[test]
fn a_servers_own_limits_hold_where_a_request_has_none() {
    let says = [
        (GO, "<think>One two three four."),
        ("\n</think>\n\n", "Yes, yes, yes, and so on"),
    ];
    let rig = || {
        rig_with(model(&says), 1024, |config| {
            config.answer_tokens = Some(20);
            config.reasoning_tokens = Some(4);
        })
    };
    let free = Sampling::greedy();
    let (parts, reason, usage) = ask(&mut rig(), &go(), free.clone());
    assert!(show(&parts).starts_with("r(One) t(Yes"), "{}", show(&parts));
    assert_eq!(
        (reason, usage.completion_tokens),
        (FinishReason::Length, 20)
    );
    let own = Sampling {
        max_tokens: Some(25),
        reasoning_budget: Some(8),
        ..free
    };
    let (parts, _, usage) = ask(&mut rig(), &go(), own);
    assert!(
        show(&parts).starts_with("r(One two) t(Yes"),
        "{}",
        show(&parts)
    );
    assert_eq!(usage.completion_tokens, 25);
}

#[test]
fn thinking_cut_by_the_limit_is_reasoning_and_ends_so() {
    let mut rig = rig(model(&[(GO, "<think>One two three four.")]), 1024);
    let (parts, reason, usage) = ask(&mut rig, &go(), greedy(8));
    assert_eq!(show(&parts), "r(One two)");
    assert_eq!(reason, FinishReason::Length);
    assert_eq!((usage.completion_tokens, usage.reasoning_tokens), (8, 8));
}

#[test]
fn stop_strings_are_looked_for_in_text_alone() {
    let answer = format!("<think>a END b</think>c END d{CALL}<|im_end|>");
    let stop = |stop: &str| Sampling {
        stop: vec![stop.to_owned()],
        ..Sampling::greedy()
    };
    let mut rig = rig(model(&[(GO, &answer)]), 1024);
    let (parts, reason, _) = ask(&mut rig, &go(), stop(" END"));
    assert_eq!(show(&parts), "r(a END b) t(c)");
    let sequence = Some(" END".to_owned());
    assert_eq!(reason, FinishReason::Stop { sequence });
    let (parts, reason, _) = ask(&mut rig, &go(), stop("name"));
    assert!(show(&parts).ends_with("c(read) a({\"n\":  1})"));
    assert_eq!(reason, STOP);
}

/// The message that a client makes of an answer: with its own spacing, and without the reasoning where it keeps none.
fn sent_back(parts: &[Part], keeps_reasoning: bool) -> Message {
    let mut message = Message::new(Role::Assistant, "");
    for part in parts {
        match part {
            Part::Text(text) => message.content.get_or_insert_default().push_str(text),
            Part::Reasoning(text) if keeps_reasoning => message.reasoning = Some(text.clone()),
            Part::Reasoning(_) => {}
            Part::Call { id, name } => message.tool_calls.push(ToolCall {
                id: Some(id.clone()),
                name: name.clone(),
                arguments: String::new(),
            }),
            Part::Arguments(more) => {
                let call = message.tool_calls.last_mut().expect("a call");
                call.arguments.push_str(&more.replace("  ", " "));
            }
        }
    }
    message
}

/// What the model says in a step of an agent's session: never as the template would write it.
fn said_in(step: u32) -> String {
    let blank = ["", "\n", "\n\n", "  "][step as usize % 4];
    format!(
        "<think>{blank}Step {step}.\n</think>\n\nI look.{blank}<tool_call>{blank}{{\"arguments\":{{\"n\" :  {step}}},\"name\":\"read\"}}</tool_call><|im_end|>"
    )
}

/// An engine with a model that says it, for twenty steps.
fn agents_rig() -> Rig {
    let asked = |step: u32| format!("result {step}<|im_end|>\n<|im_start|>assistant\n");
    let script: Vec<(String, String)> = (0..20).map(|step| (asked(step), said_in(step))).collect();
    let script: Vec<(&str, &str)> = script.iter().map(|(a, b)| (&a[..], &b[..])).collect();
    rig(model(&script), 8192)
}

/// A session of twenty steps; `between` may change the engine after each. Every prompt holds what was sampled, and only what is new
/// is computed.
fn agents_session(mut rig: Rig, keeps_reasoning: bool, mut between: impl FnMut(u32, Rig) -> Rig) {
    let mut request = chat(vec![Message::new(Role::User, "result 0")]);
    let mut computed = 0;
    for step in 0..20 {
        let (parts, reason, usage) = ask(&mut rig, &request, Sampling::greedy());
        assert_eq!(reason, STOP);
        assert_eq!(
            show(&parts),
            format!("r(Step {step}.) t(I look.) c(read) a({{\"n\" :  {step}}})")
        );
        let whole_blocks = computed / 16 * 16;
        // A start computes what was not: the last token of the answer.
        assert!(
            (whole_blocks..=computed + 1).contains(&usage.cached_tokens),
            "step {step}"
        );
        // The end token was sampled, but nothing was computed from it.
        computed = usage.prompt_tokens + usage.completion_tokens - 1;
        request.messages.push(sent_back(&parts, keeps_reasoning));
        request
            .messages
            .push(Message::new(Role::Tool, format!("result {}", step + 1)));
        rig = between(step, rig);
    }
    let prompt = rig.handle.render(&request).expect("a prompt").text();
    for step in 0..20 {
        assert!(prompt.contains(&said_in(step)), "step {step}: {prompt}");
    }
}

#[test]
fn twenty_turns_of_an_agent_compute_only_what_is_new() {
    for keeps_reasoning in [true, false] {
        agents_session(agents_rig(), keeps_reasoning, |_, rig| rig);
    }
}

#[test]
fn a_restart_in_an_agents_session_loses_nothing_of_it() {
    let key = Secret::new(&[7; 32]);
    for (secret, keeps_reasoning) in [(None, true), (None, false), (Some(key), false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |rig| on_disk::open_with(rig, folder.path(), secret.clone());
        agents_session(
            open(agents_rig()),
            keeps_reasoning,
            |step, rig| match step {
                // Even one that is killed has written it.
                3 | 4 | 11 => {
                    drop(rig);
                    open(agents_rig())
                }
                _ => rig,
            },
        );
        let readable = std::fs::read_dir(folder.path())
            .expect("there")
            .any(|file| {
                let bytes = std::fs::read(file.expect("there").path()).expect("readable");
                bytes.windows(7).any(|bytes| bytes == b"I look.")
            });
        assert_eq!(readable, secret.is_none());
    }
}
