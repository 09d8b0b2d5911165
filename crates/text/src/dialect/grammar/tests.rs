//! What each dialect's grammars allow, and that its parser reads the same calls from it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::dialect::structure;
use crate::test_vocab::{CONTROL, USER_DEFINED, bpe};
use crate::{
    ChatRequest, Constraint, ConstraintCompiler, Dialect, Opening, Part, Prompt, Special,
    TextError, Tokenizer, ToolChoice,
};

/// A model's dialect, with its markers as tokens of a kind or as text.
struct Model {
    tokenizer: Arc<Tokenizer>,
    dialect: Arc<Dialect>,
}

const END: &str = "<|im_end|>";

impl Model {
    fn new(dialect: &str, tokens: &[&str], kind: i32) -> Self {
        let mut all = vec![(END, CONTROL)];
        all.extend(tokens.iter().map(|&token| (token, kind)));
        let tokenizer = Arc::new(bpe("default", &all, &[]));
        let dialect = Dialect::named(dialect, &tokenizer).expect("a known dialect");
        Self {
            tokenizer,
            dialect: Arc::new(dialect),
        }
    }

    fn opening(&self, prompt: &str) -> Opening {
        self.opening_for(&tools(), prompt)
    }

    fn opening_for(&self, tools: &[Value], prompt: &str) -> Opening {
        let mut built = Prompt::new();
        for token in structure(prompt, &self.tokenizer) {
            let piece = std::str::from_utf8(self.tokenizer.piece(token)).expect("ASCII");
            if self.tokenizer.is_control(token) {
                built.push_control(token, piece);
            } else {
                built.push_text(piece);
            }
        }
        self.dialect.opening(tools, &built)
    }

    fn calls(
        &self,
        prompt: &str,
        choice: &ToolChoice,
        parallel: bool,
        tools: &[Value],
    ) -> Constraint {
        self.opening(prompt)
            .calls(&chat(tools, choice, parallel), None, &self.tokenizer)
            .expect("a dialect with a form")
            .expect("a constraint")
    }

    /// Whether `text` is a whole answer, and how much of it is allowed.
    fn follow(&self, constraint: &Constraint, text: &str) -> (bool, usize) {
        self.follow_tokens(constraint, structure(text, &self.tokenizer))
    }

    fn follow_tokens(&self, constraint: &Constraint, tokens: Vec<u32>) -> (bool, usize) {
        let compiler = ConstraintCompiler::new(&self.tokenizer).expect("small");
        let compiled = compiler.compile(constraint);
        let mut matcher = compiled.unwrap_or_else(|e| panic!("{e}: {constraint:?}"));
        let mut bytes = 0;
        for token in tokens {
            matcher.compute_mask().expect("a way on");
            let word = matcher
                .mask()
                .get(token as usize / 32)
                .copied()
                .unwrap_or(0);
            if word >> (token % 32) & 1 == 0 {
                return (false, bytes);
            }
            matcher.accept(token).expect("an allowed token");
            bytes += self.tokenizer.piece(token).len();
        }
        (matcher.is_accepting(), bytes)
    }

    fn accepts(&self, constraint: &Constraint, text: &str) {
        let outcome = self.follow(constraint, text);
        assert_eq!(outcome, (true, text.len()), "{text}\n{constraint:?}");
    }

    /// Not whole, and not even allowed.
    fn refuses(&self, constraint: &Constraint, text: &str) {
        let (accepting, bytes) = self.follow(constraint, text);
        assert!(!accepting && bytes < text.len(), "{text}");
    }

    /// What the parser reads.
    fn parts(&self, prompt: &str, text: &str) -> Vec<Part> {
        self.parts_for(&tools(), prompt, text)
    }

    fn parts_for(&self, tools: &[Value], prompt: &str, text: &str) -> Vec<Part> {
        let mut parser = self.opening_for(tools, prompt).parser();
        let mut parts: Vec<Part> = Vec::new();
        for token in structure(text, &self.tokenizer) {
            let more = if self.tokenizer.is_control(token) {
                parser.push_control(token)
            } else {
                let piece = self.tokenizer.piece(token);
                parser.push_text(std::str::from_utf8(piece).expect("ASCII"))
            };
            more.into_iter().for_each(|part| part.append_to(&mut parts));
        }
        parser
            .finish()
            .into_iter()
            .for_each(|part| part.append_to(&mut parts));
        parts
    }
}

fn chat(tools: &[Value], choice: &ToolChoice, parallel: bool) -> ChatRequest {
    ChatRequest {
        tools: tools.to_vec(),
        tool_choice: choice.clone(),
        parallel_tool_calls: parallel,
        ..ChatRequest::default()
    }
}

fn tools() -> Vec<Value> {
    let read = json!({
        "type": "object",
        "properties": { "path": { "type": "string" }, "lines": { "$ref": "#/$defs/lines" } },
        "required": ["path"],
        "additionalProperties": false,
        "$defs": { "lines": { "type": "integer", "minimum": 1, "maximum": 99 } },
    });
    vec![
        json!({ "type": "function", "function": { "name": "read", "strict": true, "parameters": read } }),
        json!({ "type": "function", "function": { "name": "now" } }),
    ]
}

fn loose() -> Vec<Value> {
    let mut tools = tools();
    tools[0]["function"]["strict"] = json!(false);
    tools
}

/// The calls among parts, with their arguments as JSON.
fn read(parts: &[Part]) -> Vec<(String, Value)> {
    let mut calls: Vec<(String, String)> = Vec::new();
    for part in parts {
        match part {
            Part::Call { name, .. } => calls.push((name.clone(), String::new())),
            Part::Arguments(more) => calls.last_mut().expect("a call").1.push_str(more),
            Part::Text(_) | Part::Reasoning(_) => {}
        }
    }
    let parsed = |text: &str| serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    calls
        .into_iter()
        .map(|(name, text)| (name, parsed(&text)))
        .collect()
}

/// Dialect, its tokens, the prompt's end, one call, two calls, and a wrong beginning.
type Case = (
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
    Option<&'static str>,
    &'static str,
);

const CASES: &[Case] = &[
    (
        "hermes",
        &["<tool_call>", "</tool_call>"],
        "",
        "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\", \"lines\": 7}}\n</tool_call>",
        Some(
            "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\":\"a\",\"lines\":7}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
        ),
        "<tool_call>\n{\"name\": \"write",
    ),
    (
        "qwen-coder",
        &["<tool_call>", "</tool_call>"],
        "",
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n<parameter=lines>\n7\n</parameter>\n</function>\n</tool_call>",
        Some(
            "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n<parameter=lines>\n7\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
        ),
        "<tool_call>\n<function=read>\n<parameter=lines",
    ),
    (
        "llama3",
        &[],
        "",
        "{\"name\": \"read\", \"parameters\": {\"path\": \"a\", \"lines\": 7}}",
        None,
        "{\"name\": \"read\", \"arg",
    ),
    (
        "gemma",
        &[],
        "",
        "```json\n{\"name\": \"read\", \"parameters\": {\"path\": \"a\", \"lines\": 7}}\n```",
        Some(
            "```json\n{\"name\": \"read\", \"parameters\": {\"path\": \"a\", \"lines\": 7}}\n```\n```json\n{\"name\": \"now\", \"parameters\": {}}\n```",
        ),
        "```py",
    ),
    (
        "mistral",
        &["[TOOL_CALLS]"],
        "",
        "[TOOL_CALLS] [{\"name\": \"read\", \"arguments\": {\"path\": \"a\", \"lines\": 7}}]",
        Some(
            "[TOOL_CALLS] [{\"name\": \"read\", \"arguments\": {\"path\": \"a\", \"lines\": 7}}, {\"name\": \"now\", \"arguments\": {}}]",
        ),
        "[TOOL_CALLS]read",
    ),
    (
        "mistral",
        &["[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]"],
        "",
        "[TOOL_CALLS]read[ARGS]{\"path\": \"a\", \"lines\": 7}",
        Some("[TOOL_CALLS]read[ARGS]{\"path\": \"a\", \"lines\": 7}[TOOL_CALLS]now[ARGS]{}"),
        "[TOOL_CALLS]write",
    ),
    (
        "gemma4",
        &["<|tool_call>", "<tool_call|>", "<|\"|>"],
        "",
        "<|tool_call>call:read{path:<|\"|>a<|\"|>,lines:7}<tool_call|>",
        Some(
            "<|tool_call>call:read{path:<|\"|>a<|\"|>,lines:7}<tool_call|><|tool_call>call:now{}<tool_call|>",
        ),
        "<|tool_call>call:read{lines",
    ),
    (
        "function-gemma",
        &["<start_function_call>", "<end_function_call>", "<escape>"],
        "",
        "<start_function_call>call:read{path:<escape>a<escape>,lines:7}<end_function_call>",
        None,
        "<start_function_call>call:write",
    ),
    (
        "harmony",
        &[
            "<|start|>",
            "<|channel|>",
            "<|message|>",
            "<|end|>",
            "<|constrain|>",
        ],
        "<|start|>assistant",
        "<|channel|>commentary to=functions.read <|constrain|>json<|message|>{\"path\": \"a\", \"lines\": 7}",
        None,
        "<|channel|>final",
    ),
];

#[test]
fn a_forced_call_has_its_form_and_reads_back() {
    let expected = ("read".to_owned(), json!({"path": "a", "lines": 7}));
    for &(dialect, tokens, prompt, one, two, wrong) in CASES {
        let kinds: &[i32] = match dialect {
            "harmony" => &[CONTROL],
            _ => &[CONTROL, USER_DEFINED],
        };
        for &kind in kinds {
            let model = Model::new(dialect, tokens, kind);
            let required = model.calls(prompt, &ToolChoice::Required, true, &tools());
            model.accepts(&required, one);
            model.refuses(&required, wrong);
            model.refuses(&required, "Hello");
            assert_eq!(
                read(&model.parts(prompt, one)),
                std::slice::from_ref(&expected),
                "{dialect}: {one}"
            );
            if let Some(two) = two {
                model.accepts(&required, two);
                let single = model.calls(prompt, &ToolChoice::Required, false, &tools());
                model.accepts(&single, one);
                model.refuses(&single, two);
                let both = [expected.clone(), ("now".to_owned(), json!({}))];
                assert_eq!(read(&model.parts(prompt, two)), both, "{dialect}: {two}");
            }
            let other = one.replace("read", "now");
            let named = model.calls(prompt, &ToolChoice::Named("read".into()), true, &tools());
            model.accepts(&named, one);
            model.refuses(&named, &other);
        }
    }
}

#[test]
fn control_tokens_in_the_middle_of_tags_are_tokens() {
    let deepseek = [
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
    ];
    let model = Model::new("deepseek", &deepseek, CONTROL);
    let required = model.calls("", &ToolChoice::Required, true, &tools());
    let text = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>{\"path\": \"a\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    model.accepts(&required, text);
    assert_eq!(
        read(&model.parts("", text)),
        [("read".to_owned(), json!({"path": "a"}))]
    );
    let model = Model::new("deepseek-v4", &["｜DSML｜"], CONTROL);
    let required = model.calls("", &ToolChoice::Required, true, &tools());
    let text = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"read\">\n\
        <｜DSML｜parameter name=\"path\" string=\"true\">a </b> < c</｜DSML｜parameter>\n\
        <｜DSML｜parameter name=\"lines\" string=\"false\">7</｜DSML｜parameter>\n\
        </｜DSML｜invoke>\n</｜DSML｜tool_calls>";
    model.accepts(&required, text);
    let expected = json!({"path": "a </b> < c", "lines": 7});
    assert_eq!(
        read(&model.parts("", text)),
        [("read".to_owned(), expected)]
    );
    model.refuses(&required, &text.replace(">7<", ">100<"));
}

/// A way to write `read` with these arguments in each dialect of tags, as text between the tags of the function.
fn tagged(dialect: &str, body: &str) -> String {
    match dialect {
        "qwen-coder" => format!("<tool_call>\n<function=read>\n{body}</function>\n</tool_call>"),
        _ => format!(
            "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"read\">\n{body}</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
        ),
    }
}

/// One argument `path`.
fn tag(dialect: &str, value: &str, is_text: bool) -> String {
    match dialect {
        "qwen-coder" => format!("<parameter=path>\n{value}\n</parameter>\n"),
        _ => format!(
            "<｜DSML｜parameter name=\"path\" string=\"{is_text}\">{value}</｜DSML｜parameter>\n"
        ),
    }
}

fn one_parameter(schema: &Value, strict: bool) -> Vec<Value> {
    vec![
        json!({ "type": "function", "function": { "name": "read", "strict": strict, "parameters": {
            "type": "object", "properties": { "path": schema }, "required": ["path"], "additionalProperties": false,
        }}}),
    ]
}

#[test]
fn tags_are_written_and_read_alike() {
    // A schema, whether its value is raw text, a value as written, and as read.
    let cases = [
        (json!({"type": "string"}), true, "\"1\"", json!("\"1\"")),
        (
            json!({"type": "string", "enum": ["1", "a"]}),
            true,
            "1",
            json!("1"),
        ),
        (
            json!({"type": "string", "enum": ["a", null]}),
            true,
            "a",
            json!("a"),
        ),
        (json!({"enum": ["1", "a"]}), true, "1", json!("1")),
        (json!({"enum": ["1", 1]}), false, "\"1\"", json!("1")),
        (json!({"const": "true"}), true, "true", json!("true")),
        (
            json!({"type": "string", "const": "true"}),
            true,
            "true",
            json!("true"),
        ),
        (json!({"const": 1}), false, "1", json!(1)),
        (
            json!({"type": ["string", "null"]}),
            false,
            "null",
            json!(null),
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            false,
            "\"1\"",
            json!("1"),
        ),
        (json!({"type": "integer"}), false, "1", json!(1)),
        (
            json!({"type": "string", "minLength": 2}),
            true,
            "1",
            json!("1"),
        ),
    ];
    for dialect in ["qwen-coder", "deepseek-v4"] {
        let model = Model::new(dialect, &["｜DSML｜"], CONTROL);
        for (schema, is_text, written, value) in &cases {
            let tools = one_parameter(schema, false);
            let text = tagged(dialect, &tag(dialect, written, *is_text));
            model.accepts(&model.calls("", &ToolChoice::Required, true, &tools), &text);
            let read = read(&model.parts_for(&tools, "", &text));
            assert_eq!(
                read,
                [("read".to_owned(), json!({"path": value}))],
                "{schema}"
            );
        }
        let exact = json!({"type": "string", "const": "a"});
        let exact = model.calls(
            "",
            &ToolChoice::Required,
            true,
            &one_parameter(&exact, true),
        );
        model.refuses(&exact, &tagged(dialect, &tag(dialect, "b", true)));
    }
}

#[test]
fn what_tags_cannot_keep_to_is_one_object() {
    for dialect in ["qwen-coder", "deepseek-v4"] {
        let model = Model::new(dialect, &["｜DSML｜"], CONTROL);
        let forced = |tools: &[Value]| model.calls("", &ToolChoice::Required, true, tools);
        let good = tagged(dialect, "{\"path\": \"ab\"}");
        let expected = [("read".to_owned(), json!({"path": "ab"}))];
        for limit in [
            json!({"type": "string", "maxLength": 2}),
            json!({"type": "string", "pattern": "^a"}),
        ] {
            let tools = one_parameter(&limit, true);
            model.accepts(&forced(&tools), &good);
            model.refuses(&forced(&tools), &tagged(dialect, "{\"path\": \"bcd\"}"));
            model.refuses(
                &forced(&tools),
                &tagged(dialect, &tag(dialect, "bcd", true)),
            );
            assert_eq!(read(&model.parts_for(&tools, "", &good)), expected);
        }
        for strict in [false, true] {
            for combined in [
                json!({"$ref": "#/$defs/path", "$defs": { "path": {
                    "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"],
                }}}),
                json!({"type": "object", "properties": {"path": {"type": "string"}}, "anyOf": [{"required": ["path"]}]}),
            ] {
                let tools = [
                    json!({ "function": { "name": "read", "strict": strict, "parameters": combined } }),
                ];
                model.accepts(&forced(&tools), &good);
                model.refuses(&forced(&tools), &tagged(dialect, ""));
            }
        }
    }
}

#[test]
fn an_expression_holds_for_the_text_behind_the_escapes() {
    let input = json!({"type": "string", "pattern": "^(?:a\\n\"b\"+|\\\\d)$"});
    let tools = one_parameter(&input, true);
    for dialect in ["hermes", "qwen-coder", "mistral", "harmony"] {
        let model = Model::new(dialect, &[], CONTROL);
        let forced = model.calls("", &ToolChoice::Required, true, &tools);
        let call = |text: &str| {
            let arguments = json!({"path": text}).to_string();
            match dialect {
                "hermes" => format!(
                    "<tool_call>\n{{\"name\": \"read\", \"arguments\": {arguments}}}\n</tool_call>"
                ),
                "mistral" => {
                    format!("[TOOL_CALLS] [{{\"name\": \"read\", \"arguments\": {arguments}}}]")
                }
                "harmony" => format!(
                    "<|channel|>commentary to=functions.read <|constrain|>json<|message|>{arguments}"
                ),
                _ => tagged(dialect, &arguments),
            }
        };
        for text in ["a\n\"b\"\"", "\\d"] {
            model.accepts(&forced, &call(text));
            assert_eq!(
                read(&model.parts_for(&tools, "", &call(text))),
                [("read".to_owned(), json!({"path": text}))]
            );
        }
        for text in ["a", "a\\n\"b\"", "7", "xa\n\"b\""] {
            model.refuses(&forced, &call(text));
        }
    }
}

fn bare_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "kind": { "enum": ["a", 1, null] },
            "tags": { "type": "array", "items": { "type": "string" } },
            "at": { "$ref": "#/$defs/place" },
            "either": { "anyOf": [{ "type": "boolean" }, { "type": "string" }] },
            "free": {},
            "map": { "type": "object" },
            "tree": { "$ref": "#/$defs/tree" },
        },
        "required": ["at"],
        "$defs": { "tree": { "type": "object", "properties": { "of": { "type": "array", "items": { "$ref": "#/$defs/tree" } } } }, "place": { "type": "object", "properties": { "x": { "type": ["integer", "null"] } }, "required": ["x"] } },
    })
}

#[test]
fn bare_arguments_follow_the_schema() {
    let tools = [json!({ "function": { "name": "read", "parameters": bare_schema() } })];
    for kind in [CONTROL, USER_DEFINED] {
        let model = Model::new("gemma4", &["<|tool_call>", "<tool_call|>", "<|\"|>"], kind);
        let forced = model.calls("", &ToolChoice::Required, true, &tools);
        let call = |arguments: &str| {
            format!(
                "<|tool_call>call:read{}<tool_call|>",
                arguments.replace('\'', "<|\"|>")
            )
        };
        for (arguments, value) in [
            ("{at:{x:1}}", json!({"at": {"x": 1}})),
            (
                "{kind:'a',at:{x:null}}",
                json!({"kind": "a", "at": {"x": null}}),
            ),
            (
                "{kind:1,tags:[],at:{x:1}}",
                json!({"kind": 1, "tags": [], "at": {"x": 1}}),
            ),
            (
                "{tags:['a','b, }'],at:{x:1},either:true}",
                json!({"tags": ["a", "b, }"], "at": {"x": 1}, "either": true}),
            ),
            (
                "{at:{x:1},map:{k:'v'},tree:{of:[{},{of:[]}]}}",
                json!({"at": {"x": 1}, "map": {"k": "v"}, "tree": {"of": [{}, {"of": []}]}}),
            ),
            (
                "{at:{x:1},either:'t',free:{k:[1,'v',{}]}}",
                json!({"at": {"x": 1}, "either": "t", "free": {"k": [1, "v", {}]}}),
            ),
        ] {
            let text = call(arguments);
            model.accepts(&forced, &text);
            assert_eq!(
                read(&model.parts_for(&tools, "", &text)),
                [("read".to_owned(), value)],
                "{text}"
            );
        }
        for arguments in [
            "{}",
            "{at:1}",
            "{at:{}}",
            "{,at:{x:1}}",
            "{kind:'b',at:{x:1}}",
            "{at:{x:1},}",
            "{at:{x:1},tags:[]}",
            "{tags:[1],at:{x:1}}",
            "{at:{x:1},either:1}",
            "{at:{x:1},other:1}",
            "{at:{x:1},map:1}",
            "{at:{x:1},tree:{of:[1]}}",
        ] {
            model.refuses(&forced, &call(arguments));
        }
    }
}

#[test]
fn bare_arguments_that_cannot_be_held_to_a_strict_schema_are_refused() {
    let model = Model::new("gemma4", &[], CONTROL);
    let limited = one_parameter(&json!({"type": "string", "maxLength": 2}), true);
    let refused = model.opening("").calls(
        &chat(&limited, &ToolChoice::Auto, true),
        None,
        &model.tokenizer,
    );
    assert!(refused.unwrap_err().to_string().contains("`read`"));
}

#[test]
fn names_are_text_whatever_they_are_spelt_like() {
    let markers = ["<tool_call>", "</tool_call>", "<think>", "｜DSML｜"];
    for (dialect, open, tag, rest) in [
        (
            "qwen-coder",
            "<tool_call>\n<function=",
            ">\n<parameter=",
            ">\n7\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            "deepseek-v4",
            "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"",
            "\">\n<｜DSML｜parameter name=\"",
            "\" string=\"false\">7</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        ),
    ] {
        let model = Model::new(dialect, &markers, CONTROL);
        let tool = json!({ "type": "function", "function": { "name": "a<tool_call>", "parameters": {
            "properties": { "b<think>": { "type": "integer" } }, "required": ["b<think>"],
        }}});
        let required = model.calls("", &ToolChoice::Required, true, &[tool]);
        let spelt = |text: &str| structure(text, &model.tokenizer);
        let text = |text: &str| model.tokenizer.encode(text, Special::Text);
        let named = [
            spelt(open),
            text("a<tool_call>"),
            spelt(tag),
            text("b<think>"),
            spelt(rest),
        ];
        assert!(
            model.follow_tokens(&required, named.concat()).0,
            "{dialect}"
        );
        let marked = [open, "a<tool_call>", tag, "b<think>", rest].map(spelt);
        assert!(
            !model.follow_tokens(&required, marked.concat()).0,
            "{dialect}"
        );
    }
}

#[test]
fn reasoning_may_come_before_a_forced_call() {
    let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let forced =
        |model: &Model, prompt: &str| model.calls(prompt, &ToolChoice::Required, true, &tools());
    for kind in [CONTROL, USER_DEFINED] {
        let tokens = ["<think>", "</think>", "<tool_call>", "</tool_call>"];
        let model = Model::new("hermes", &tokens, kind);
        let free = forced(&model, "");
        for before in ["", "<think>\nno, <b>\n</think>\n\n", "<think></think>"] {
            model.accepts(&free, &format!("{before}{call}"));
        }
        model.refuses(&free, "<think>hm</think>Hello");
        let open = forced(&model, "<think>\n");
        model.accepts(&open, &format!("hm\n</think>\n\n{call}"));
        assert!(!model.follow(&open, call).0, "the reasoning is open");
        model.refuses(&open, "hm</think>Hello");
        // A prompt that has closed it wants none.
        let closed = forced(&model, "<think>\n\n</think>\n\n");
        model.accepts(&closed, call);
        model.accepts(&closed, &format!("\n\n{call}"));
        model.refuses(&closed, &format!("<think>\nno\n</think>{call}"));
    }
    // A vocabulary without a token for it is no thinking model's.
    let model = Model::new("hermes", &[], CONTROL);
    model.refuses(&forced(&model, ""), "<think>");
    let tokens = [
        "<|start|>",
        "<|channel|>",
        "<|message|>",
        "<|end|>",
        "<|constrain|>",
    ];
    let model = Model::new("harmony", &tokens, CONTROL);
    let forced = forced(&model, "<|start|>assistant");
    let call = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}";
    let thought = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant";
    model.accepts(&forced, &format!("{thought}{call}"));
    model.refuses(&forced, &format!("{thought}<|channel|>final"));
}

#[test]
fn without_force_only_what_is_strict_is_constrained() {
    for kind in [CONTROL, USER_DEFINED] {
        let model = Model::new("hermes", &["<tool_call>", "</tool_call>"], kind);
        let free = model.opening("").calls(
            &chat(&loose(), &ToolChoice::Auto, true),
            None,
            &model.tokenizer,
        );
        assert_eq!(free.expect("nothing to refuse"), None);
        let none = model.opening("").calls(
            &chat(&tools(), &ToolChoice::None, true),
            None,
            &model.tokenizer,
        );
        assert_eq!(none.expect("nothing to refuse"), None);
        let auto = model.calls("", &ToolChoice::Auto, true, &tools());
        let call =
            "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>";
        for text in [
            "Hello <b> \"you\"",
            "",
            call,
            &format!("I read.\n{call}"),
            &format!("{call}\n{call}"),
        ] {
            model.accepts(&auto, text);
        }
        model.refuses(&auto, &format!("I read.\n{}", call.replace("path", "file")));
        model.refuses(&auto, &call.replace("read", "write"));
        let single = model.calls("", &ToolChoice::Auto, false, &loose());
        model.accepts(&single, &format!("I read.\n{call}"));
        model.refuses(&single, &format!("{call}\n{call}"));
    }
}

#[test]
fn a_control_token_in_the_middle_of_a_tag_begins_a_call() {
    let model = Model::new("deepseek-v4", &["｜DSML｜"], CONTROL);
    let auto = model.calls("", &ToolChoice::Auto, true, &tools());
    let read = "<｜DSML｜invoke name=\"read\">\n<｜DSML｜parameter name=\"path\" string=\"true\">a</｜DSML｜parameter>\n</｜DSML｜invoke>";
    let block = |calls: &str| format!("<｜DSML｜tool_calls>\n{calls}\n</｜DSML｜tool_calls>");
    let call = block(read);
    for text in [
        "Hello <b> <",
        "",
        &call,
        &format!("I < read.\n\n{call}"),
        &format!("{call}\n{call}<"),
        &block(&format!("{read}\n{read}")),
    ] {
        model.accepts(&auto, text);
    }
    model.refuses(
        &auto,
        &format!("I read.\n\n{}", call.replace("path", "file")),
    );
    model.refuses(&auto, &call.replace("\"read", "\"write"));
    model.refuses(&auto, "a ｜DSML｜");
    let single = model.calls("", &ToolChoice::Auto, false, &loose());
    model.accepts(&single, &format!("I read.\n{call}"));
    model.refuses(&single, &format!("{call}\n{call}"));
    model.refuses(&single, &block(&format!("{read}\n{read}")));
}

#[test]
fn a_form_of_the_text_goes_with_tools() {
    let model = Model::new("hermes", &["<tool_call>", "</tool_call>"], CONTROL);
    let answer = Constraint::JsonSchema {
        schema: json!({"enum": [1]}),
        strict: true,
    };
    let both = model
        .opening("")
        .calls(
            &chat(&loose(), &ToolChoice::Auto, true),
            Some(&answer),
            &model.tokenizer,
        )
        .expect("a form")
        .expect("a constraint");
    model.accepts(&both, "1");
    model.accepts(
        &both,
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
    );
    model.refuses(&both, "2");
}

#[test]
fn what_cannot_be_forced_is_said() {
    let error = |model: &Model, choice: ToolChoice| {
        let calls = model
            .opening("")
            .calls(&chat(&tools(), &choice, true), None, &model.tokenizer);
        match calls {
            Err(error @ TextError::Constraint { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let model = Model::new("hermes", &[], CONTROL);
    assert_eq!(
        error(&model, ToolChoice::Named("write".into())),
        "there is no tool `write`"
    );
}
