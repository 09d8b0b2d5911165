//! Random answers at random cuts: what is written well is read exactly, and whatever is written, no cut changes what is read and
//! nothing is lost.

use std::fmt::Write as _;

use super::{Rig, Said, show, tools};
use crate::{Dialect, Part};

/// Numbers that look random (xorshift).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    pub(super) fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// Cuts the texts of an answer at random.
pub(super) fn cut(said: &[Said], random: &mut Random) -> Vec<Said> {
    let mut pieces = Vec::new();
    for piece in said {
        let Said::Bytes(bytes) = piece else {
            pieces.push(piece.clone());
            continue;
        };
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let most = random.of(&[1, 3, 9, 40]);
            let (first, second) = rest.split_at((1 + random.below(most)).min(rest.len()));
            pieces.push(Said::Bytes(first.to_vec()));
            rest = second;
        }
    }
    pieces
}

const BITS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ", ",
    "\n",
    " ",
    "\\",
    "`",
    "```",
    ">",
    "<",
    "é",
    "🙂",
    "w1 ",
    "w2.",
    "w3",
    "{\"name\": \"read\", \"arguments\": ",
    "{\"name\": \"now\", \"parameters\": {}}",
    "{\"path\": \"w4\"}",
    "\"name\": ",
    "\"read\"",
    "\"arguments\": ",
    "{}",
    "{\"function\": ",
    "call:read",
    "path:",
    "name=\"read\"",
    "read",
    "print(read(",
    "path=\"w5\"",
    ")",
    "functions.read",
    " to=",
    "assistant",
    "analysis",
    "final",
    "commentary",
    "json",
    "\" string=\"true\">",
    "\" string=\"false\">",
];

fn marks(dialect: &str) -> &'static [&'static str] {
    let mut syntaxes = super::super::SYNTAXES.iter();
    let syntax = syntaxes.find(|syntax| syntax.names[0] == dialect);
    syntax.expect("a known dialect").marks
}

/// An answer of markers and bits in any order.
fn noise(dialect: &str, random: &mut Random) -> String {
    let marks = marks(dialect);
    let mut answer = String::new();
    for _ in 0..random.below(24) {
        let bits = if random.below(3) == 0 { marks } else { BITS };
        answer += random.of(bits);
    }
    answer
}

/// All that was said, without what it was.
fn words(parts: &[Part]) -> String {
    let mut all = String::new();
    for part in parts {
        let (Part::Text(text)
        | Part::Reasoning(text)
        | Part::Arguments(text)
        | Part::Call { name: text, .. }) = part;
        all += text;
    }
    all
}

/// How often each word occurs.
fn count(text: &str) -> [usize; 5] {
    ["w1", "w2", "w3", "w4", "w5"].map(|word| text.matches(word).count())
}

/// Any answer: no cut matters, and without calls nothing is lost.
fn any_answer(rigs: &[(&'static str, Rig)], random: &mut Random) {
    let (dialect, rig) = &rigs[random.below(rigs.len())];
    let prompt = random.of(&["", "", "<think>", "<|start|>assistant"]);
    let answer = noise(dialect, random);
    let said = rig.said(&answer);
    let tools = if random.below(4) == 0 {
        Vec::new()
    } else {
        tools()
    };
    let whole = rig.parse(&tools, prompt, &said);
    let pieces = rig.parse(&tools, prompt, &cut(&said, random));
    assert_eq!(show(&whole), show(&pieces), "{dialect}: {answer:?}");
    if !whole.iter().any(|part| matches!(part, Part::Call { .. })) && *dialect != "harmony" {
        assert_eq!(
            count(&words(&whole)),
            count(&answer),
            "{dialect}: {answer:?} became {}",
            show(&whole)
        );
    }
}

/// A well-formed answer and its parts.
fn well_formed(dialect: &str, random: &mut Random) -> (String, String) {
    let (mut answer, mut parts) = (String::new(), String::new());
    let text = random.of(&[
        "I look.",
        "a < b, { or `x`",
        "é 🙂\n\nline two",
        "1. [x] \"q\" \\",
    ]);
    let thought = random.of(&["", "Hm.", "Is </thin it?\n\nNo: {\"name\": 1}."]);
    let path = random.of(&["a.txt", "é \\\"q\\\"", "line\\nline", "<b>{}</b>"]);
    let raw: String = serde_json::from_str(&format!("\"{path}\"")).expect("a string");
    let json = format!("{{\"path\": \"{path}\"}}");
    let blank = random.of(&["", "\n", "\n\n"]);
    if !thought.is_empty() {
        let think = match dialect {
            "harmony" => {
                format!("<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant")
            }
            "gemma4" => format!("<|channel>thought\n{thought}<channel|>{blank}"),
            "mistral" => format!("[THINK]{thought}[/THINK]{blank}"),
            _ => format!("<think>{blank}{thought}{blank}</think>{blank}"),
        };
        answer += &think;
        _ = write!(parts, "r({thought}) ");
    }
    if random.below(2) == 0 {
        answer += &match dialect {
            "harmony" => format!("<|channel|>commentary<|message|>{text}<|end|><|start|>assistant"),
            _ => format!("{text}{blank}"),
        };
        _ = write!(parts, "t({text}) ");
    } else if random.below(8) == 0 && thought.is_empty() {
        answer += "\n";
    }
    for _ in 0..=random.below(3) {
        let (call, arguments) = call(dialect, &json, &raw, random);
        answer += &call;
        _ = write!(parts, "c(read) a({arguments}) ");
        if dialect == "harmony" {
            break;
        }
    }
    (answer, parts.trim_end().to_owned())
}

/// A call and its arguments as they must be read.
fn call(dialect: &str, json: &str, raw: &str, random: &mut Random) -> (String, String) {
    let object = format!("{{\"name\": \"read\", \"arguments\": {json}}}");
    let spelt = serde_json::Value::from(raw).to_string();
    let made = format!("{{\"path\": {spelt}}}");
    match dialect {
        "harmony" => (
            format!(
                "<|channel|>commentary to=functions.read <|constrain|>json<|message|>{json}<|call|>"
            ),
            json.to_owned(),
        ),
        "deepseek-v4" => (
            format!(
                "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"read\">\n<｜DSML｜parameter name=\"path\" string=\"true\">{raw}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
            ),
            made,
        ),
        "deepseek" => {
            let inside = random.of(&[true, false]);
            let inside = if inside {
                format!("read<｜tool▁sep｜>{json}")
            } else {
                format!("function<｜tool▁sep｜>read\n```json\n{json}\n```")
            };
            (
                format!(
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{inside}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
                ),
                json.to_owned(),
            )
        }
        "gemma4" => (
            format!("<|tool_call>call:read{{path:<|\"|>{raw}<|\"|>}}<tool_call|>"),
            format!("{{\"path\":{spelt}}}"),
        ),
        "function-gemma" => (
            format!(
                "<start_function_call>call:read{{path:<escape>{raw}<escape>}}<end_function_call>"
            ),
            format!("{{\"path\":{spelt}}}"),
        ),
        "qwen-coder" => (
            format!(
                "\n<tool_call>\n<function=read>\n<parameter=path>\n{raw}\n</parameter>\n</function>\n</tool_call>"
            ),
            made,
        ),
        "hermes" => (
            format!("\n<tool_call>\n{object}\n</tool_call>"),
            json.to_owned(),
        ),
        "mistral" => match random.below(2) {
            0 => (format!("[TOOL_CALLS][{object}]"), json.to_owned()),
            _ => (format!("[TOOL_CALLS]read[ARGS]{json}"), json.to_owned()),
        },
        "llama3" => (format!("<|python_tag|>{object}"), json.to_owned()),
        "gemma" => (format!("\n```json\n{object}\n```\n"), json.to_owned()),
        _ => (
            format!("\n<tool_call>{object}</tool_call>\n"),
            json.to_owned(),
        ),
    }
}

fn good_answer(rigs: &[(&'static str, Rig)], random: &mut Random) {
    let (dialect, rig) = &rigs[random.below(rigs.len())];
    let (answer, wanted) = well_formed(dialect, random);
    let said = rig.said(&answer);
    let tools = tools();
    let pieces = rig.parse(&tools, "", &cut(&said, random));
    assert_eq!(show(&pieces), wanted, "{dialect}: {answer:?}");
    let whole = rig.parse(&tools, "", &said);
    assert_eq!(show(&whole), wanted, "{dialect}: {answer:?}");
}

fn run(rounds: u32) {
    let both = Dialect::names()
        .flat_map(|name| [(name, Rig::new(name, false)), (name, Rig::new(name, true))]);
    let rigs: Vec<(&'static str, Rig)> = both.collect();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..rounds {
        any_answer(&rigs, &mut random);
        good_answer(&rigs, &mut random);
    }
}

/// How many bytes of an answer are read, for each that it has.
fn reads_per_byte(rig: &Rig, said: &[Said]) -> usize {
    let mut parser = rig.parser(&tools(), "");
    let mut bytes = 0;
    for piece in said {
        match piece {
            Said::Bytes(text) => {
                bytes += text.len();
                parser.push_text(std::str::from_utf8(text).expect("an answer of whole characters"));
            }
            Said::Control(token) => {
                bytes += 1;
                parser.push_control(*token);
            }
        }
    }
    parser.finish();
    parser.bytes_read().div_ceil(bytes.max(1))
}

#[test]
fn repeated_markers_are_not_read_again_and_again() {
    for dialect in Dialect::names() {
        for control in [false, true] {
            let rig = Rig::new(dialect, control);
            let marks = marks(dialect);
            for (index, one) in marks.iter().enumerate() {
                for other in &marks[index..] {
                    for (blank, tail) in [("", ""), ("", "x"), ("\n", "x")] {
                        let answer = format!("{one}{blank}{other}{blank}").repeat(60) + tail;
                        let reads = reads_per_byte(&rig, &rig.said(&answer));
                        assert!(
                            reads <= 4,
                            "{dialect}: {reads} reads a byte of {one:?}, {other:?}, …"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn random_answers() {
    run(3_000);
}

/// `cargo test --release -p andante-text million -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn a_million_random_answers() {
    run(500_000);
}
