//! One answer, its parts. The malformed ones are the table of `docs/dialects.md`.

use super::{Rig, Said, check, check_after, check_in, cut, show, tools};

const CALL: &str = r#"{"name": "read", "arguments": {"path": "a.txt"}}"#;
const READ: &str = r#"c(read) a({"path": "a.txt"})"#;

#[test]
fn hermes() {
    check("hermes", "Just text.\n", "t(Just text.\n)");
    let answer = format!("I look.\n\n<tool_call>\n{CALL}\n</tool_call>");
    check("hermes", &answer, &format!("t(I look.) {READ}"));
    let block = format!("<tool_call>{CALL}</tool_call>");
    check(
        "hermes",
        &format!("{block}\n{block}\nDone."),
        &format!("{READ} {READ} t(Done.)"),
    );
    let two = format!("<tool_call>{CALL}\n{CALL}</tool_call>");
    check("hermes", &two, &format!("{READ} {READ}"));
    check(
        "hermes",
        r#"<tool_call>[{"arguments": {"n": 1}, "name": "read"}, {"name": "now"}]</tool_call>"#,
        r#"c(read) a({"n": 1}) c(now) a({})"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"id": 7, "name": "read", "arguments": "{\"path\": \"é\\n\"}"}</tool_call>"#,
        r#"c(read) a({"path": "é\n"})"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"type": "function", "function": {"name": "read", "parameters": {"n": [1, {"a": "}"}]}}}</tool_call>"#,
        r#"c(read) a({"n": [1, {"a": "}"}]})"#,
    );
    let null = r#"<tool_call>{"name": "now", "arguments": null}</tool_call>"#;
    check("hermes", null, "c(now) a({})");
}

#[test]
fn reasoning() {
    let answer = "<think>\nHm.\n\nSo.\n</think>\n\nYes.";
    check("hermes", answer, "r(Hm.\n\nSo.) t(Yes.)");
    check("hermes", "\n<think></think>Yes.", "t(Yes.)");
    let answer = format!("<think>\nI read.\n</think>\n\n<tool_call>\n{CALL}\n</tool_call>");
    check("qwen3", &answer, &format!("r(I read.) {READ}"));
    check("mistral", "[THINK]a[/THINK]b", "r(a) t(b)");
    check("mistral", "<think>\na\n</think>\nb", "r(a) t(b)");
    let answer = "<|channel>thought\nHm.<channel|>Yes.";
    check("gemma4", answer, "r(Hm.) t(Yes.)");
    let answer = "First.\n<think>Hm.</think>\nThen.";
    check("hermes", answer, "t(First.) r(Hm.) t(Then.)");
}

#[test]
fn reasoning_that_the_prompt_has_opened() {
    let wanted = "r(Hm.) t(Yes.)";
    let answer = "Hm.\n</think>\n\nYes.";
    check_after("hermes", "assistant\n<think>\n", answer, wanted);
    check_after("deepseek", "<think>", "Hm.</think>Yes.", wanted);
    check_in(
        true,
        "hermes",
        "<|unrelated|>assistant\n<think>\n",
        answer,
        wanted,
    );
    let closed = "assistant\n<think>\n\n</think>\n\n";
    check_after("hermes", closed, "Yes.", "t(Yes.)");
    check_after("deepseek", "</think>", "Yes.", "t(Yes.)");
    let prompt = "<|start|>assistant<|channel|>analysis<|message|>";
    let answer = "Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.";
    check_after("harmony", prompt, answer, wanted);
}

#[test]
fn reasoning_that_is_not_closed_or_not_opened() {
    check("hermes", "<think>Hm. ", "r(Hm. )");
    check("hermes", "Hm.\n</think>\n\nYes.", "t(Hm.\n\n\nYes.)");
    check("hermes", "<think>a</think></think>b", "r(a) t(b)");
    check_in(
        false,
        "hermes",
        "",
        "<think>a <think>b</think>c",
        "r(a <think>b) t(c)",
    );
    check_in(
        true,
        "hermes",
        "",
        "<think>a <think>b</think>c",
        "r(a b) t(c)",
    );
    // Calls in it are thought of, not made.
    let answer = format!("<think><tool_call>{CALL}</tool_call></think>b");
    let plain = format!("r(<tool_call>{CALL}</tool_call>) t(b)");
    check_in(false, "hermes", "", &answer, &plain);
}

#[test]
fn a_word_in_the_text_is_no_marker() {
    let text = "Write <think> to think and <tool_call> to call, then </tool_call>.";
    check_in(false, "hermes", "", text, &format!("t({text})"));
    // Where the vocabulary has a token for it, its spelling is text whatever follows.
    let spelt = format!("<tool_call>{CALL}</tool_call> and\n<think>");
    let rig = Rig::new("hermes", true);
    let bytes = [Said::Bytes(spelt.clone().into_bytes())];
    for pieces in [cut(&bytes, None), bytes.to_vec()] {
        assert_eq!(
            show(&rig.parse(&tools(), "", &pieces)),
            format!("t({spelt})")
        );
    }
    check_in(true, "hermes", "", "a<|unrelated|>b", "t(ab)");
}

#[test]
fn without_tools_calls_are_text() {
    let answers = [
        ("hermes", format!("<tool_call>{CALL}</tool_call>")),
        ("llama3", CALL.to_owned()),
        ("generic", format!("```json\n{CALL}\n```")),
        (
            "qwen-coder",
            "<function=read><parameter=path>a</parameter></function>".to_owned(),
        ),
    ];
    for (dialect, answer) in answers {
        let rig = Rig::new(dialect, false);
        let parts = rig.parse(&[], "", &rig.said(&answer));
        assert_eq!(show(&parts), format!("t({answer})"));
    }
    // Harmony's headers are never text.
    let rig = Rig::new("harmony", true);
    let answer = "<|channel|>commentary to=functions.read<|message|>{}<|call|>";
    assert_eq!(show(&rig.parse(&[], "", &rig.said(answer))), "t({})");
}

#[test]
fn without_tools_whitespace_is_not_held_back() {
    let rig = Rig::new("hermes", false);
    let mut stream = rig.stream(&[], "");
    let mut push = |text: &str| show(&stream.push(text.as_bytes()).parts);
    assert_eq!(push("\n"), "");
    assert_eq!(push("a \n\n"), "t(\na \n\n)");
    assert_eq!(push("<think>Hm. "), "r(Hm.)");
    assert_eq!(push("</think>\n\n"), "");
    assert_eq!(push("b <think>\n"), "t(b <think>\n)");
    let mut stream = rig.stream(&tools(), "");
    assert_eq!(show(&stream.push(b"a \n").parts), "t(a)");
    assert_eq!(show(&stream.finish()), "t( \n)");
}

#[test]
fn malformed_json_calls() {
    // Not JSON: what is in the tags is text.
    check(
        "hermes",
        "<tool_call>{name: read}</tool_call>",
        "t({name: read})",
    );
    check(
        "hermes",
        r#"<tool_call>{"nome": 1}</tool_call>x"#,
        r#"t({"nome": 1}x)"#,
    );
    check("hermes", "a <tool_call>\n</tool_call> b", "t(a \n b)");
    check(
        "hermes",
        r#"<tool_call>{"name": 5, "arguments": {}}"#,
        r#"t({"name": 5, "arguments": {}})"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"name": "", "arguments": {}}"#,
        r#"t({"name": "", "arguments": {}})"#,
    );
    // Cut before its name is known; after it; in the closing tag.
    check("hermes", "Hm. <tool_call>{\"na", "t(Hm. {\"na)");
    check(
        "hermes",
        r#"<tool_call>{"name": "read", "arguments": {"path": "a"#,
        r#"c(read) a({"path": "a)"#,
    );
    check_in(
        false,
        "hermes",
        "",
        &format!("<tool_call>{CALL}</tool_c"),
        READ,
    );
    check_in(false, "hermes", "", "Hm. <tool_ca", "t(Hm. )");
    check_in(false, "hermes", "", "1 <t", "t(1 <t)");
    // A bracket too few, too many, or something else after the call.
    let answer = r#"<tool_call>{"name": "read", "arguments": {"n": 1}</tool_call> b"#;
    check("hermes", answer, r#"c(read) a({"n": 1}) t(b)"#);
    let answer = r#"<tool_call>{"name": "read", "arguments": {"n": 1</tool_call> b"#;
    check("hermes", answer, r#"c(read) a({"n": 1) t(b)"#);
    let answer = format!("<tool_call>{CALL}}}</tool_call> b");
    check("hermes", &answer, &format!("{READ} t(}} b)"));
    let answer = format!("<tool_call>{CALL} and so on</tool_call> b");
    check("hermes", &answer, &format!("{READ} t(and so on b)"));
    // No quotation mark at the end of a string, and nothing after the closing tag.
    let answer = r#"<tool_call>{"name": "read", "arguments": {"path": "a</tool_call>"#;
    check("hermes", answer, r#"c(read) a({"path": "a)"#);
}

#[test]
fn a_call_cut_after_its_name_is_a_call() {
    for cut in ["", ",", ", \"arguments\"", ", \"arguments\": "] {
        let call = format!("{{\"name\": \"read\"{cut}");
        check("hermes", &format!("a\n<tool_call>{call}"), "t(a) c(read)");
        check("llama3", &format!("<|python_tag|>{call}"), "c(read)");
        check("mistral", &format!("[TOOL_CALLS][{call}"), "c(read)");
        check(
            "qwen-coder",
            &format!("<tool_call>{CALL}\n{call}"),
            &format!("{READ} c(read)"),
        );
        check(
            "hermes",
            &format!("<tool_call>{call}</tool_call> b"),
            "c(read) a({}) t(b)",
        );
    }
    check(
        "hermes",
        "<tool_call>{\"name\": \"rea",
        "t({\"name\": \"rea)",
    );
    // What the string of the arguments says.
    for (cut, said) in [
        ("{\\\"path\\\": \\\"a", r#"{"path": "a"#),
        ("{\\\"\\", r#"{""#),
        ("é\\ud83d\\ude", "é"),
    ] {
        let answer = format!("<tool_call>{{\"name\": \"read\", \"arguments\": \"{cut}");
        check("hermes", &answer, &format!("c(read) a({said})"));
    }
}

#[test]
fn a_call_cut_after_its_name_is_a_call_in_every_form() {
    // Without a marker it is one when it comes to the arguments.
    check("llama3", "{\"name\": \"read\", \"parameters\":", "c(read)");
    check(
        "llama3",
        "{\"name\": \"read\", \"para",
        "t({\"name\": \"read\", \"para)",
    );
    check(
        "llama3",
        "{\"name\": \"other\", \"parameters\":",
        "t({\"name\": \"other\", \"parameters\":)",
    );
    check(
        "gemma",
        "```json\n{\"name\": \"read\", \"parameters\": ",
        "c(read)",
    );
    check("mistral", "[TOOL_CALLS]read[ARGS]", "c(read)");
    check("mistral", "[TOOL_CALLS]read[CALL_ID]x1", "c(read)");
    check(
        "mistral",
        "[TOOL_CALLS]now[ARGS][TOOL_CALLS]read[ARGS]",
        "c(now) a({}) c(read)",
    );
    let begin = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>";
    check("deepseek", &format!("{begin}read<｜tool▁sep｜>"), "c(read)");
    check(
        "deepseek",
        &format!("{begin}now<｜tool▁sep｜><｜tool▁call▁end｜>"),
        "c(now) a({})",
    );
    check(
        "deepseek",
        &format!("{begin}function<｜tool▁sep｜>read\n```js"),
        "c(read)",
    );
    check(
        "deepseek",
        &format!("{begin}function<｜tool▁sep｜>re"),
        "t(functionre)",
    );
    check("gemma4", "<|tool_call>call:read{", "c(read) a({)");
    check("qwen-coder", "<tool_call><function=read>", "c(read)");
    let header = "<|channel|>commentary to=functions.read";
    check("harmony", &format!("{header} <|constrain|>json"), "c(read)");
    check("harmony", header, "");
}

#[test]
fn nested_repeated_and_orphan_tags() {
    let nested = format!("<tool_call><tool_call>{CALL}</tool_call></tool_call>b");
    check("hermes", &nested, &format!("{READ} t(b)"));
    let unclosed = format!("<tool_call>{CALL}<tool_call>{CALL}</tool_call>");
    check("hermes", &unclosed, &format!("{READ} {READ}"));
    check("hermes", "a</tool_call>b", "t(ab)");
    check("hermes", "a\n<tool_call>", "t(a\n)");
    check_in(
        false,
        "hermes",
        "",
        "<tool_call>\n<tool_call> x</tool_call>",
        "t(<tool_call> x</tool_call>)",
    );
    check(
        "hermes",
        &format!("{CALL}</tool_call>"),
        &format!("t({CALL})"),
    );
    let open = format!("<tool_call>{CALL}\nDone.");
    check("hermes", &open, &format!("{READ} t(Done.)"));
    // Tags in a string are part of it.
    let quoted =
        r#"<tool_call>{"name": "read", "arguments": {"path": "</tool_call>"}}</tool_call>"#;
    check_in(
        false,
        "hermes",
        "",
        quoted,
        r#"c(read) a({"path": "</tool_call>"})"#,
    );
}

#[test]
fn unknown_tools_are_called() {
    let answer = r#"<tool_call>{"name": "write", "arguments": {}}</tool_call>"#;
    check("hermes", answer, "c(write) a({})");
}

#[test]
fn llama() {
    let call = r#"{"name": "read", "parameters": {"path": "a.txt"}}"#;
    check("llama3", call, READ);
    check(
        "llama3",
        &format!("\n{call}; {call}"),
        &format!("{READ} {READ}"),
    );
    check("llama3", &format!("<|python_tag|>{call}"), READ);
    check(
        "llama3",
        r#"<function=read>{"path": "a.txt"}</function>"#,
        READ,
    );
    check(
        "llama3",
        r#"{"type": "function", "name": "now", "parameters": {}}"#,
        "c(now) a({})",
    );
    check(
        "llama3",
        "I look.\n<|python_tag|>read.call(path=\"a\", n=2)",
        "t(I look.) c(read) a({\"path\":\"a\",\"n\":2})",
    );
    check("llama3", "<|python_tag|>now()", "c(now) a({})");
    check(
        "llama3",
        &format!("<|python_tag|>\n<|python_tag|>{call}; {call}"),
        &format!("{READ} {READ}"),
    );
    check("llama3", "a\n<|python_tag|>", "t(a\n)");
    check_in(
        true,
        "llama3",
        "",
        "<|python_tag|>other.call(n=1)",
        "t(other.call(n=1))",
    );
    // Data, another's call, a call after text.
    for text in [
        r#"{"name": "Ada", "parameters": {"n": 1}}"#,
        r#"{"name": "read"}"#,
        r#"{"path": "a"}"#,
        "{}",
        "{ \"name\"",
        "[1, 2]",
        "So: {\"name\": \"read\", \"parameters\": {}}",
    ] {
        check("llama3", text, &format!("t({text})"));
    }
    check_in(
        true,
        "llama3",
        "",
        "<|python_tag|>import os",
        "t(import os)",
    );
    check_in(
        false,
        "llama3",
        "",
        "<function=run>x</function>",
        "t(<function=run>x</function>)",
    );
}

#[test]
fn mistral() {
    check(
        "mistral",
        &format!("[TOOL_CALLS] [{CALL}, {CALL}]"),
        &format!("{READ} {READ}"),
    );
    let id = r#"[TOOL_CALLS][{"name": "now", "arguments": {}, "id": "abc123456"}]"#;
    check("mistral", id, "c(now) a({})");
    let answer =
        r#"I look.[TOOL_CALLS]read[ARGS]{"path": "a.txt"}[TOOL_CALLS]now[CALL_ID]x1[ARGS]{}"#;
    check(
        "mistral",
        answer,
        &format!("t(I look.) {READ} c(now) a({{}})"),
    );
    check("mistral", r#"[TOOL_CALLS]read{"path": "a.txt"}"#, READ);
    check(
        "mistral",
        r#"[TOOL_CALLS]read[ARGS]{"path": "a.t"#,
        r#"c(read) a({"path": "a.t)"#,
    );
    check("mistral", "The [TOOL_CALLS] token", "t(The  token)");
    check_in(
        false,
        "mistral",
        "",
        "[TOOL_CALLS] is a token.",
        "t([TOOL_CALLS] is a token.)",
    );
    check("mistral", "[TOOL_CALLS]read", "t(read)");
    check("mistral", "[TOOL_CALLS]", "");
}

#[test]
fn qwen_coder() {
    let answer = "I look.\n\n<tool_call>\n<function=read>\n<parameter=path>\na.txt\n</parameter>\n\
        <parameter=n>\n3\n</parameter>\n<parameter=lines>\n[1, 2]\n</parameter>\n</function>\n</tool_call>";
    let wanted = r#"t(I look.) c(read) a({"path": "a.txt", "n": 3, "lines": [1, 2]})"#;
    check("qwen-coder", answer, wanted);
    check(
        "qwen-coder",
        "<function=now>\n</function>\n</tool_call>",
        "c(now) a({})",
    );
    let json = format!("<tool_call>\n{CALL}\n</tool_call>");
    check("qwen-coder", &json, READ);
    // Strings are raw: nothing in them is markup but the end.
    let answer = "<tool_call><function=read><parameter=path>\n\n a \"b\"\\\n</b> </function> é\n\n</parameter></function></tool_call>";
    check(
        "qwen-coder",
        answer,
        r#"c(read) a({"path": "\n a \"b\"\\\n</b> </function> é\n"})"#,
    );
    // A number that is none, an end that is missing, a call that is cut.
    let answer = "<tool_call><function=read><parameter=n>many</parameter></function></tool_call>";
    check("qwen-coder", answer, r#"c(read) a({"n": "many"})"#);
    let answer = "<tool_call><function=read><parameter=path>a\n</function>\n</tool_call>b";
    check("qwen-coder", answer, r#"c(read) a({"path": "a"}) t(b)"#);
    let answer = "<tool_call><function=read><parameter=path>a";
    check("qwen-coder", answer, r#"c(read) a({"path": "a)"#);
    let answer = "<tool_call><function=read><parameter=path>a</parameter>";
    check("qwen-coder", answer, r#"c(read) a({"path": "a")"#);
    let first = "<tool_call><function=now></function>";
    let cut = format!("{first}<function=rea");
    check("qwen-coder", &cut, "c(now) a({}) t(rea)");
    let cut = format!("{first}<function=read me\nb");
    check("qwen-coder", &cut, "c(now) a({}) t(<function=read me\nb)");
    let text = "Use <function=name> for it.";
    check_in(false, "qwen-coder", "", text, &format!("t({text})"));
}

#[test]
fn dsml() {
    let answer = "I look.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"read\">\n\
        <｜DSML｜parameter name=\"path\" string=\"true\">a.txt</｜DSML｜parameter>\n\
        <｜DSML｜parameter name=\"n\" string=\"false\">3</｜DSML｜parameter>\n\
        </｜DSML｜invoke>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
    let wanted = r#"t(I look.) c(read) a({"path": "a.txt", "n": 3}) c(now) a({})"#;
    check("deepseek-v4", answer, wanted);
    check(
        "dsml",
        &answer.replace("tool_calls", "function_calls"),
        wanted,
    );
    let answer = "<｜DSML｜tool_calls><｜DSML｜invoke name=\"read\">{\"path\": \"a.txt\"}</｜DSML｜invoke></｜DSML｜tool_calls>";
    check("dsml", answer, READ);
    let answer = "<｜DSML｜invoke name=\"read\"><｜DSML｜parameter name=\"path\" string=\"true\">\n\"a\"\n</｜DSML｜parameter></｜DSML｜invoke>";
    check("dsml", answer, r#"c(read) a({"path": "\n\"a\"\n"})"#);
    check(
        "dsml",
        "a<｜DSML｜tool_calls></｜DSML｜tool_calls>b",
        "t(ab)",
    );
    check("dsml", "a</｜DSML｜invoke>b", "t(ab)");
    let cut = "<｜DSML｜tool_calls><｜DSML｜invoke name=\"now\"></｜DSML｜invoke><｜DSML｜invoke name=\"re";
    check("dsml", cut, "c(now) a({}) t(re)");
}

#[test]
fn deepseek() {
    let begin = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>";
    let end = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    let json = r#"{"path": "a.txt"}"#;
    let long = format!("I look.\n{begin}function<｜tool▁sep｜>read\n```json\n{json}\n```{end}");
    check("deepseek-v3", &long, &format!("t(I look.) {READ}"));
    check(
        "deepseek-v3.1",
        &format!("{begin}read<｜tool▁sep｜>{json}{end}"),
        READ,
    );
    let two = format!(
        "{begin}read<｜tool▁sep｜>{json}<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>now<｜tool▁sep｜>{{}}{end}Done."
    );
    check("deepseek", &two, &format!("{READ} c(now) a({{}}) t(Done.)"));
    check(
        "deepseek",
        &format!("{begin}read<｜tool▁sep｜>{json}"),
        READ,
    );
    check("deepseek", &format!("{begin}rea"), "t(rea)");
    check("deepseek", &format!("a{end}b"), "t(ab)");
    let call = "<｜tool▁call▁begin｜>";
    let cut = format!("{begin}read<｜tool▁sep｜>{json}<｜tool▁call▁end｜>{call}no");
    check("deepseek", &cut, &format!("{READ} t(no)"));
    check(
        "deepseek",
        &format!("{cut}{end}b"),
        &format!("{READ} t(nob)"),
    );
    let unclosed = format!("{begin}read<｜tool▁sep｜>{{\"n\": 1{end}b");
    check("deepseek", &unclosed, r#"c(read) a({"n": 1) t(b)"#);
}

#[test]
fn gemma() {
    let answer = "I look.\n```tool_code\nprint(read(path=\"a.txt\", lines=[1, None], n=-2))\n```\n";
    check(
        "gemma",
        answer,
        r#"t(I look.) c(read) a({"path":"a.txt","lines":[1,null],"n":-2})"#,
    );
    let json = "```json\n{\"name\": \"read\", \"parameters\": {\"path\": \"a.txt\"}}\n```";
    check("gemma", json, READ);
    check(
        "gemma",
        "{\"name\": \"now\", \"parameters\": {}}",
        "c(now) a({})",
    );
    for text in [
        "```json\n{\"a\": 1}\n```",
        "```json\n[1]\n```\nSo.",
        "```tool_code\nprint(1)\n```",
        "```tool_code\nprint(print(read(path=\"a\")))\n```",
        "```tool_code\nread(path=open(1))\n```",
        "```python\nread(path=\"a\")\n```",
    ] {
        check("gemma", text, &format!("t({text})"));
    }
}

#[test]
fn gemma4() {
    let answer = "I look.<|tool_call>call:read{path:<|\"|>a \"b\"\n<|\"|>,n:3,lines:[1,{k:<|\"|>v<|\"|>}]}<tool_call|>";
    let wanted = r#"t(I look.) c(read) a({"path":"a \"b\"\n","n":3,"lines":[1,{"k":"v"}]})"#;
    check("gemma4", answer, wanted);
    let answer = "<start_function_call>call:read{path:<escape>a<escape>}<end_function_call><start_function_call>call:now{}<end_function_call>";
    check(
        "function-gemma",
        answer,
        r#"c(read) a({"path":"a"}) c(now) a({})"#,
    );
    check(
        "gemma4",
        "<|tool_call>call:read{path:<|\"|>a",
        r#"c(read) a({"path":"a)"#,
    );
    check("gemma4", "<|tool_call><tool_call|>b", "t(b)");
}

#[test]
fn harmony() {
    let answer = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>\
        <|start|>assistant<|channel|>commentary to=functions.read <|constrain|>json<|message|>{\"path\": \"a.txt\"}<|call|>";
    check("harmony", answer, &format!("r(Hm.) t(I look.) {READ}"));
    check("gpt-oss", "<|channel|>final<|message|>Yes.\n", "t(Yes.\n)");
    let first = " to=functions.read<|channel|>commentary json<|message|>{\"path\": \"a.txt\"}";
    check("harmony", first, READ);
    check_after("harmony", "<|start|>assistant", first, READ);
    check(
        "harmony",
        "<|channel|>commentary to=functions.now<|message|><|call|>",
        "c(now) a({})",
    );
    // No header; one without end; one that is cut.
    check("harmony", "Yes.", "t(Yes.)");
    check_after("harmony", "<|start|>assistant", "Yes.", "t(Yes.)");
    check("harmony", "<|channel|>final", "");
    for end in ["<|end|>", "<|call|>", "<|return|>", "<|start|>assistant"] {
        let cut = format!("<|channel|>commentary to=functions.read{end}");
        check(
            "harmony",
            &format!("{cut}<|channel|>final<|message|>Yes."),
            "t(Yes.)",
        );
        check("harmony", &format!("{cut}<|message|>Yes."), "t(Yes.)");
        check(
            "harmony",
            &format!("to{end}<|channel|>final<|message|>Yes."),
            "t(toYes.)",
        );
    }
    check("harmony", "to", "t(to)");
    check(
        "harmony",
        "<|channel|>analysis<|message|>Hm.<|end|>",
        "r(Hm.)",
    );
    check(
        "harmony",
        "<|channel|>final<|message|>a<|message|>b<|constrain|>",
        "t(ab)",
    );
}

#[test]
fn generic() {
    let answer = format!("<tool_call>\n{CALL}\n</tool_call>");
    check("generic", &answer, READ);
    check("generic", CALL, READ);
    check("json", &format!("```json\n{CALL}\n```"), READ);
    check(
        "generic",
        &format!("```json\n{CALL}\n{CALL}\n```\nb"),
        &format!("{READ} {READ} t(b)"),
    );
    let text = "```json\n{\"name\": \"other\", \"arguments\": {}}\n```";
    check("generic", text, &format!("t({text})"));
}
