//! DSML as DeepSeek V4 writes it, and random streams of it: nothing is lost, nothing leaks.
//!
//! In a stream every character that is content is of its own kind (a run of CJK), so what it must become can be said without another parser:
//!
//! * *Nothing is lost*: all content of the stream is in the parts, once, in its order. Not content are complete tags, control
//!   tokens, whitespace, and at its end the beginning of a tag.
//! * *Nothing leaks*: no text, reasoning or name has the spelling of a control token; no text has a piece of a tag that was sampled
//!   whole. In arguments, tokens of the dialect are content as they are spelt, as in the official code; others are nowhere.
//! * An answer that the encoding has written is read exactly: reasoning, text, names, arguments.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::random::{Random, cut};
use super::{Rig, Said, check_after, check_in, show, tools};
use crate::prompt::Piece;
use crate::test_vocab::{self, CONTROL, USER_DEFINED};
use crate::{
    ChatRequest, ChatTemplate, Choices, Dialect, Message, Part, Prompt, Prose, Role, Tokenizer,
    ToolCall,
};

/// The tokens of the model, listed as its files list them.
const TOKENS: &[(&str, i32)] = &[
    ("<｜begin▁of▁sentence｜>", CONTROL),
    ("<｜end▁of▁sentence｜>", CONTROL),
    ("<｜User｜>", CONTROL),
    ("<｜Assistant｜>", CONTROL),
    ("<think>", USER_DEFINED),
    ("</think>", USER_DEFINED),
    ("｜DSML｜", USER_DEFINED),
    ("<｜action｜>", CONTROL),
];

fn tokenizer() -> Tokenizer {
    test_vocab::bpe("joyai-llm", TOKENS, &[])
}

/// The model's dialect and its encoding.
struct Model {
    rig: Rig,
    encoding: ChatTemplate,
}

impl Model {
    fn new() -> Self {
        let tokenizer = tokenizer();
        let encoding = ChatTemplate::deepseek4(&tokenizer, Prose::default(), Choices::default());
        let encoding = encoding.expect("the vocabulary has all tokens");
        let mut rig = Rig::of("deepseek-v4", &tokenizer);
        rig.dialect = Arc::new(Dialect::of_model(Some(&encoding), &tokenizer));
        assert_eq!(rig.dialect.name(), "deepseek-v4");
        Self { rig, encoding }
    }

    fn parse(&self, opening: &str, said: &[Said]) -> Vec<Part> {
        self.rig.parse(&tools(), opening, said)
    }

    /// An answer as the encoding writes it after the prompt that it answers.
    fn written(&self, answer: Message) -> Vec<Said> {
        let mut request = ChatRequest {
            messages: vec![Message::new(Role::User, "x"), answer],
            tools: tools(),
            ..ChatRequest::default()
        };
        let after = self.encoding.render(&request).expect("it renders");
        request.messages.pop();
        request.add_generation_prompt = true;
        let before = self.encoding.render(&request).expect("it renders");
        let skipped = pieces(&before).len();
        let mut said = pieces(&after).split_off(skipped);
        said.pop();
        said
    }
}

fn pieces(prompt: &Prompt) -> Vec<Said> {
    let said = |piece: Piece<'_>| match piece {
        Piece::Text(text) => Said::Bytes(text.as_bytes().to_vec()),
        Piece::Control { id, .. } => Said::Control(id),
    };
    prompt.pieces().map(said).collect()
}

/// The completions that the official code parses, and what it says of them.
#[test]
fn the_golden_completions_are_parsed_as_the_official_code_does() {
    let golden = include_str!("../../../tests/fixtures/deepseek4/golden.json");
    let golden: Value = serde_json::from_str(golden).expect("valid JSON");
    let cases = golden["parse"].as_array().expect("completions");
    assert_eq!(cases.len(), 3);
    let model = Model::new();
    for case in cases {
        let opening = match case["thinking_mode"].as_str() {
            Some("thinking") => "<think>",
            _ => "</think>",
        };
        let text = case["text"].as_str().expect("a text");
        let parts = model.parse(opening, &model.rig.said(text));
        let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
        for part in parts {
            match part {
                Part::Reasoning(text) => reasoning += &text,
                Part::Text(text) => content += &text,
                Part::Call { name, .. } => calls.push((name, String::new())),
                Part::Arguments(more) => calls.last_mut().expect("a call").1 += &more,
            }
        }
        let calls = calls.iter().map(|(name, arguments)| {
            json!({"type": "function", "function": {"name": name, "arguments": arguments}})
        });
        let message = json!({
            "role": "assistant",
            "content": content,
            "reasoning_content": reasoning,
            "tool_calls": calls.collect::<Value>(),
        });
        assert_eq!(message, case["message"], "{}", case["name"]);
    }
}

fn check_dsml(answer: &str, wanted: &str) {
    check_in(true, "deepseek-v4", "</think>", answer, wanted);
}

#[test]
fn tags_may_be_spaced_and_say_nothing_else() {
    let calls = |invoke: &str, parameter: &str| {
        format!(
            "<｜DSML｜tool_calls>\n <｜DSML｜invoke{invoke}>\n  <｜DSML｜parameter{parameter}>7</｜DSML｜parameter>\n </｜DSML｜invoke>\n</｜DSML｜tool_calls>\n"
        )
    };
    let (read, n) = (" name=\"read\"", " name=\"n\" string=\"false\"");
    let wanted = "c(read) a({\"n\": 7})";
    check_after("dsml", "", &calls(read, n), wanted);
    check_after(
        "dsml",
        "",
        &calls("  name = \"read\" ", "\nname=\"n\"  string = \"false\" "),
        wanted,
    );
    check_after(
        "dsml",
        "",
        &calls("  name = \"read\" ", " string=\"false\" name=\"n\" "),
        wanted,
    );
    check_after(
        "dsml",
        "",
        &calls(read, " name=\"n\""),
        "c(read) a({\"n\": \"7\"})",
    );
    check_after(
        "dsml",
        "",
        &calls(read, " name=\"a > b\" string=\"true\""),
        "c(read) a({\"a > b\": \"7\"})",
    );
    // What is no such tag ends the call; it is text.
    check_dsml(
        &calls(read, " name=\"n\" string=\"no\""),
        "c(read) t(name=\"n\" string=\"no\">7\n \n\n)",
    );
    check_dsml(
        &calls(read, " name=\"n\" n=\"n\""),
        "c(read) t(name=\"n\" n=\"n\">7\n \n\n)",
    );
    check_dsml(&calls(read, " name=\"\""), "c(read) t(name=\"\">7\n \n\n)");
    check_dsml(
        &calls(" id=\"read\"", n),
        "t(\n  id=\"read\">\n   name=\"n\" string=\"false\">7\n \n\n)",
    );
}

#[test]
fn tags_that_are_missing_are_as_good_as_there() {
    let read = "<｜DSML｜invoke name=\"read\">\n";
    let path = "<｜DSML｜parameter name=\"path\" string=\"true\">a";
    let n = "<｜DSML｜parameter name=\"n\" string=\"false\">7";
    let (end, done) = ("</｜DSML｜parameter>\n", "</｜DSML｜invoke>\n");
    let both = "c(read) a({\"path\": \"a\", \"n\": 7})";
    // Of arguments.
    check_after("dsml", "", &format!("{read}{path}\n{n}{end}{done}"), both);
    check_after("dsml", "", &format!("{read}{path}{end}{n}\n{done}"), both);
    check_dsml(&format!("{read}{path}{end}{n}{done}"), both);
    // Of calls.
    check_after(
        "dsml",
        "",
        &format!("{read}{path}{end}{read}{n}{end}{done}"),
        "c(read) a({\"path\": \"a\"}) c(read) a({\"n\": 7})",
    );
    check_after(
        "dsml",
        "",
        &format!("<｜DSML｜tool_calls>\n{read}{path}{end}{n}{end}</｜DSML｜tool_calls>"),
        both,
    );
    check_after(
        "dsml",
        "",
        &format!("<｜DSML｜tool_calls>\n{read}{path}{end}{n}{end}{done}"),
        both,
    );
    // Of the block.
    check_after(
        "dsml",
        "",
        &format!("{read}{path}{end}{n}{end}{done}</｜DSML｜tool_calls>"),
        both,
    );
}

#[test]
fn calls_that_were_cut_keep_what_there_is() {
    let read = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"read\">\n";
    let path = format!("{read}<｜DSML｜parameter name=\"path\" string=\"true\">a.t");
    let lines = format!("{read}<｜DSML｜parameter name=\"lines\" string=\"false\">[1, ");
    check_after("dsml", "", &path, "c(read) a({\"path\": \"a.t)");
    check_after(
        "dsml",
        "",
        &format!("{path}</｜DSML｜param"),
        "c(read) a({\"path\": \"a.t)",
    );
    check_after("dsml", "", &lines, "c(read) a({\"lines\": [1, )");
    check_after(
        "dsml",
        "",
        &format!("{read}<｜DSML｜parameter name=\"li"),
        "c(read) t(li)",
    );
    check_after("dsml", "", read, "c(read)");
}

#[test]
fn strings_are_raw_and_have_the_dialects_tokens_as_they_are_spelt() {
    let call = |value: &str| {
        format!(
            "<｜DSML｜invoke name=\"read\"><｜DSML｜parameter name=\"path\" string=\"true\">{value}</｜DSML｜parameter></｜DSML｜invoke>"
        )
    };
    for value in [
        "a </think> <think>",
        "｜DSML｜",
        "<｜DSML｜invo> </｜DSML｜param>",
        "\n{\"a\": 1}\n",
    ] {
        let wanted = format!(
            "c(read) a({})",
            json!({"path": value})
                .to_string()
                .replace("\":\"", "\": \"")
        );
        check_after("dsml", "", &call(value), &wanted);
    }
    // Another token is in no part.
    check_dsml(&call("a<|unrelated|>b"), "c(read) a({\"path\": \"ab\"})");
}

#[test]
fn tags_leave_nothing_where_they_mean_nothing() {
    check_dsml("Use <｜DSML｜tool_calls> here", "t(Use  here)");
    check_dsml("a <｜DSML｜parameter name=\"x\">", "t(a  name=\"x\">)");
    check_dsml("a </｜DSML｜invoke>b", "t(a b)");
}

/// What a stream holds that must be in its parts.
fn is_content(c: char) -> bool {
    ('\u{4E00}'..'\u{9FFF}').contains(&c)
}

fn content(text: &str) -> String {
    text.chars().filter(|&c| is_content(c)).collect()
}

/// Everything that may be in a stream, but for content.
const BITS: &[&str] = &[
    "<｜DSML｜tool_calls>\n",
    "<｜DSML｜tool_calls>",
    "\n</｜DSML｜tool_calls>",
    "</｜DSML｜tool_calls>",
    "<｜DSML｜function_calls>\n",
    "</｜DSML｜function_calls>",
    "<｜DSML｜invoke name=\"read\">\n",
    "<｜DSML｜invoke name=\"now\">",
    "<｜DSML｜invoke",
    " name=\"read\">",
    "</｜DSML｜invoke>\n",
    "</｜DSML｜invoke>",
    "<｜DSML｜parameter name=\"path\" string=\"true\">",
    "\n<｜DSML｜parameter name=\"n\" string=\"false\">",
    "<｜DSML｜parameter name=\"lines\" string=\"false\">[1, \"",
    "<｜DSML｜parameter",
    " name=\"",
    "\" string=\"true\">",
    "\" string=\"false\">",
    "</｜DSML｜parameter>\n",
    "</｜DSML｜parameter>",
    "<｜DSML｜",
    "</｜DSML｜",
    "｜DSML｜",
    "<think>",
    "</think>",
    "<｜action｜>",
    "<｜User｜>",
    "<",
    "</",
    ">",
    "\"",
    "\\",
    "{",
    "}",
    "{\"path\": \"",
    "\"}",
    "[",
    "]",
    ":",
    ",",
    "7",
    "null",
    "\n",
    "\n\n",
    " ",
    "é",
    "🙂",
];

/// The tags that leave nothing, wherever they are.
const WHOLE: &[&str] = &[
    "<｜DSML｜tool_calls>",
    "</｜DSML｜tool_calls>",
    "<｜DSML｜function_calls>",
    "</｜DSML｜function_calls>",
    "<｜DSML｜invoke",
    "</｜DSML｜invoke>",
    "<｜DSML｜parameter",
    "</｜DSML｜parameter>",
];

/// Makes content that no other in the stream is like.
struct Content(u32);

impl Content {
    fn next(&mut self, random: &mut Random) -> String {
        let count = 1 + u32::try_from(random.below(3)).expect("few");
        let chars = (self.0..self.0 + count).filter_map(char::from_u32);
        self.0 += count;
        chars.collect()
    }
}

/// Bits and content in any order.
fn noise(random: &mut Random, content: &mut Content) -> String {
    let mut stream = String::new();
    for _ in 0..random.below(30) {
        if random.below(3) == 0 {
            stream += &content.next(random);
        } else {
            stream += random.of(BITS);
        }
    }
    stream
}

/// A string that somebody may pass to a tool.
fn string(random: &mut Random, content: &mut Content) -> String {
    let mut text = String::new();
    for _ in 0..random.below(6) {
        match random.below(4) {
            0 => text += &content.next(random),
            1 => {
                text += random.of(&[
                    "\u{1}",
                    "\t",
                    "\r\n",
                    "</b>",
                    "=",
                    "\u{10FFFF}",
                    "string=\"true\"",
                    "x",
                ]);
            }
            _ => text += random.of(BITS),
        }
    }
    text
}

fn value(random: &mut Random, content: &mut Content, depth: usize) -> Value {
    match random.below(if depth > 2 { 6 } else { 8 }) {
        0..3 => string(random, content).into(),
        3 => random.of(&[0, -7, i64::MAX]).into(),
        4 => random.of(&[0.5, -1e-9, 2.5e300]).into(),
        5 => random.of(&[Some(true), Some(false), None]).into(),
        6 => (0..random.below(3))
            .map(|_| value(random, content, depth + 1))
            .collect(),
        _ => {
            let members = (0..random.below(3))
                .map(|_| (content.next(random), value(random, content, depth + 1)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

/// An answer that a model may have meant.
fn answer(random: &mut Random, content: &mut Content) -> Message {
    let say = |random: &mut Random, content: &mut Content| match random.below(3) {
        0 => None,
        // Control tokens cannot be said; their spelling can.
        _ => Some(format!(
            "{} {} {}",
            content.next(random),
            string(random, content),
            content.next(random)
        )),
    };
    let reasoning = say(random, content);
    let text = say(random, content);
    let calls = (0..random.below(4)).map(|_| {
        let arguments = (0..random.below(4)).map(|_| {
            let key = format!(
                "{}{}",
                content.next(random),
                random.of(&["", " > ", "<b", "=", "'"])
            );
            (key, value(random, content, 0))
        });
        let arguments = Value::Object(arguments.collect::<Map<_, _>>());
        ToolCall {
            id: None,
            name: random.of(&["read", "now", "other"]).to_owned(),
            arguments: arguments.to_string(),
        }
    });
    let tool_calls = calls.collect();
    Message {
        content: text,
        reasoning,
        tool_calls,
        ..Message::new(Role::Assistant, "")
    }
}

/// Takes out, doubles, swaps and adds pieces, and cuts the end off.
fn damage(said: &mut Vec<Said>, random: &mut Random, content: &mut Content) {
    for _ in 0..=random.below(3) {
        if said.is_empty() {
            return;
        }
        let (one, other) = (random.below(said.len()), random.below(said.len()));
        match random.below(5) {
            0 => _ = said.remove(one),
            1 => said.swap(one, other),
            2 => said.truncate(one),
            3 => said.insert(one, Said::Bytes(content.next(random).into_bytes())),
            _ => {
                if let Said::Control(token) = said[one] {
                    said.insert(other, Said::Control(token));
                }
            }
        }
    }
}

/// The characters of a stream, its control tokens as `\0`.
fn spelt(said: &[Said]) -> String {
    let text = |piece: &Said| match piece {
        Said::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Said::Control(_) => "\0".to_owned(),
    };
    said.iter().map(text).collect()
}

/// Nothing is lost, nothing leaks, whatever the stream.
fn check_stream(model: &Model, opening: &str, said: &[Said], is_spelt: bool, random: &mut Random) {
    let parts = model.parse(opening, said);
    let stream = || format!("{opening} {said:?} became {}", show(&parts));
    let cut = model.parse(opening, &cut(said, random));
    assert_eq!(show(&parts), show(&cut), "cut otherwise: {}", stream());
    let mut read = String::new();
    for part in &parts {
        let (Part::Text(text)
        | Part::Reasoning(text)
        | Part::Arguments(text)
        | Part::Call { name: text, .. }) = part;
        read.extend(text.chars().filter(|&c| is_content(c)));
        // Where the stream had the spelling as text, it may.
        let is_argument = matches!(part, Part::Arguments(_));
        for (token, _) in TOKENS.iter().filter(|_| !is_spelt) {
            let is_own = is_argument && WHOLE_TOKENS.contains(token);
            assert!(
                is_own || !text.contains(token),
                "{token} leaks: {}",
                stream()
            );
        }
    }
    assert_eq!(read, content(&spelt(said)), "lost: {}", stream());
    if is_spelt {
        return;
    }
    let text: String = parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => &text[..],
            _ => "\0",
        })
        .collect();
    // What is left of the stream when whole tags are gone.
    let mut rest = spelt(said);
    for tag in WHOLE {
        rest = rest.replace(&tag.replace("｜DSML｜", "\0"), "");
    }
    for word in ["tool_calls", "function_calls", "invoke", "parameter"] {
        assert!(
            text.matches(word).count() <= rest.matches(word).count(),
            "{word} leaks: {}",
            stream()
        );
    }
}

/// Tokens of the dialect.
const WHOLE_TOKENS: [&str; 3] = ["<think>", "</think>", "｜DSML｜"];

/// An answer of the encoding must be read as it was meant.
fn check_answer(model: &Model, random: &mut Random) {
    let answer = answer(random, &mut Content(0x4E00));
    let said = model.written(answer.clone());
    let parts = model.parse("<think>", &cut(&said, random));
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for part in &parts {
        match part {
            Part::Text(more) => text += more,
            Part::Reasoning(more) => reasoning += more,
            Part::Call { name, .. } => calls.push((name.clone(), String::new())),
            Part::Arguments(more) => calls.last_mut().expect("a call").1 += more,
        }
    }
    let why = || format!("{answer:?} was written {said:?}");
    assert_eq!(
        text,
        answer.content.clone().unwrap_or_default(),
        "{}",
        why()
    );
    assert_eq!(
        reasoning,
        answer.reasoning.clone().unwrap_or_default(),
        "{}",
        why()
    );
    assert_eq!(calls.len(), answer.tool_calls.len(), "{}", why());
    for ((name, arguments), meant) in calls.iter().zip(&answer.tool_calls) {
        assert_eq!(*name, meant.name, "{}", why());
        let read: Value =
            serde_json::from_str(arguments).unwrap_or_else(|_| panic!("{arguments}: {}", why()));
        let meant: Value = serde_json::from_str(&meant.arguments).expect("JSON");
        assert_eq!(read, meant, "{}", why());
    }
}

fn run(streams: u32) {
    let model = Model::new();
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    for stream in 0..streams {
        let mut content = Content(0x4E00);
        match stream % 3 {
            0 => {
                let opening = random.of(&["<think>", "</think>"]);
                let said = model.rig.said(&noise(&mut random, &mut content));
                check_stream(&model, opening, &said, false, &mut random);
            }
            1 => {
                let mut said = model.written(answer(&mut random, &mut content));
                damage(&mut said, &mut random, &mut content);
                check_stream(&model, "<think>", &said, true, &mut random);
            }
            _ => check_answer(&model, &mut random),
        }
    }
}

#[test]
fn random_streams_lose_nothing_and_leak_nothing() {
    run(6_000);
}

/// `cargo test --release -p andante-text million -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn a_million_random_streams_lose_nothing_and_leak_nothing() {
    run(1_000_000);
}
