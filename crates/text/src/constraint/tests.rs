//! Which answers each kind of constraint allows, over vocabularies of bytes and of words.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::test_vocab::{BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, bpe, file};

const END: u32 = 0;

#[test]
fn a_frame_is_a_grammar_of_limited_size_too() {
    let framed = |comment: usize| Constraint::Framed {
        frame: format!("// {}\nstart: @answer\n", "x".repeat(comment)),
        answer: Box::new(Constraint::JsonObject),
    };
    accepts(&framed(10), &["{}"]);
    assert!(complaint_about(&framed(MAX_GRAMMAR_BYTES)).contains("larger than 131072 bytes"));
}

/// Words beside the bytes, so that tokens reach over the parts of a grammar.
fn words() -> Arc<Tokenizer> {
    Arc::new(bpe(
        "default",
        &[
            ("<|im_end|>", CONTROL),
            ("<|tool|>", CONTROL),
            ("<think>", USER_DEFINED),
            ("ab", NORMAL),
            ("{\"", NORMAL),
            ("\":", NORMAL),
            ("true", NORMAL),
            ("yes", NORMAL),
            ("\"}", NORMAL),
        ],
        &[],
    ))
}

fn compiler() -> ConstraintCompiler {
    ConstraintCompiler::new(&words()).expect("a small vocabulary")
}

fn compile(constraint: &Constraint) -> Result<Matcher, TextError> {
    compiler().compile(constraint)
}

fn complaint_about(constraint: &Constraint) -> String {
    compile(constraint)
        .expect_err("it cannot be compiled")
        .to_string()
}

fn allows(matcher: &mut Matcher, token: u32) -> bool {
    let mask = matcher.mask();
    mask.get(token as usize / 32)
        .is_some_and(|word| word >> (token % 32) & 1 == 1)
}

/// Whether `text` is a whole answer, and whether it begins one, token by token as the tokenizer spells it and byte by byte.
fn follows(constraint: &Constraint, text: &str) -> (bool, bool) {
    let tokenizer = words();
    let spelt = tokenizer.encode(text, crate::Special::Text);
    let bytes: Vec<u32> = text
        .chars()
        .flat_map(|c| tokenizer.encode(&c.to_string(), crate::Special::Text))
        .collect();
    let outcomes = [spelt, bytes].map(|tokens| {
        let mut matcher = compile(constraint).expect("a valid constraint");
        for token in tokens {
            matcher.compute_mask().expect("a way on");
            if !allows(&mut matcher, token) {
                return (false, false);
            }
            matcher.accept(token).expect("an allowed token");
        }
        let accepting = matcher.is_accepting();
        if let Ok(()) = matcher.compute_mask() {
            assert_eq!(
                allows(&mut matcher, END),
                accepting,
                "the end behind {text:?}"
            );
        }
        (accepting, true)
    });
    assert_eq!(outcomes[0].0, outcomes[1].0, "however {text:?} is spelt");
    outcomes[1]
}

fn accepts(constraint: &Constraint, texts: &[&str]) {
    for text in texts {
        assert_eq!(follows(constraint, text), (true, true), "{text}");
    }
}

fn begins(constraint: &Constraint, texts: &[&str]) {
    for text in texts {
        assert_eq!(follows(constraint, text), (false, true), "{text}");
    }
}

fn refuses(constraint: &Constraint, texts: &[&str]) {
    for text in texts {
        assert_eq!(follows(constraint, text), (false, false), "{text}");
    }
}

fn schema(schema: Value) -> Constraint {
    Constraint::JsonSchema {
        schema,
        strict: true,
    }
}

#[test]
fn a_json_object_may_be_any_and_nothing_else() {
    let object = Constraint::JsonObject;
    accepts(
        &object,
        &[
            "{}",
            r#"{"a": 1}"#,
            r#"{"a":[1,2,{"b":null}],"c":"d\n"}"#,
            "{\n  \"a\": true\n}",
        ],
    );
    begins(&object, &["{", r#"{"a""#, r#"{"a": tr"#]);
    refuses(&object, &["[", "true", " {", "{}x", "{,", r#"{"a" "b"#]);
}

#[test]
fn blanks_between_the_parts_of_json_have_a_bound() {
    let object = Constraint::JsonObject;
    begins(&object, &["{ ", "{\n", &format!("{{\n{}", " ".repeat(40))]);
    refuses(
        &object,
        &["{  ", "{\n\n", &format!("{{\n{}", " ".repeat(41))],
    );
}

#[test]
fn a_schema_decides_what_an_answer_holds() {
    let person = schema(json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 5},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "of": {"$ref": "#/$defs/colour"},
        },
        "required": ["name", "age"],
        "additionalProperties": false,
        "$defs": {"colour": {"enum": ["red", "blue"]}},
    }));
    accepts(
        &person,
        &[
            r#"{"name":"ab","age":7}"#,
            r#"{"name":"ab","age":120,"of":"red"}"#,
        ],
    );
    refuses(
        &person,
        &[
            "{}",
            r#"{"name":"""#,
            r#"{"name":"abcdef"#,
            r#"{"name":"ab","age":121"#,
            r#"{"name":"ab","age":7,"x"#,
            r#"{"name":"ab","age":7,"of":"g"#,
        ],
    );
    let pattern = schema(json!({"type": "string", "pattern": "^wf_[a-z0-9-]{6,}$"}));
    accepts(&pattern, &[r#""wf_abc-12""#]);
    refuses(&pattern, &[r#""wf_abc""#, r#""x"#]);
    let date = schema(json!({"type": "string", "format": "date"}));
    accepts(&date, &[r#""2024-02-29""#]);
    refuses(&date, &[r#""2024-13"#]);
    accepts(&schema(json!(true)), &["1", "[]", "{}"]);
}

#[test]
fn what_of_a_schema_cannot_be_enforced_is_named_with_its_place() {
    let list = json!({
        "type": "object",
        "properties": {"a/b": {"anyOf": [{"type": "null"}, {"type": "array", "uniqueItems": true}]}},
    });
    let complaint = complaint_about(&schema(list.clone()));
    assert!(complaint.contains("uniqueItems"), "{complaint}");
    assert!(
        complaint.ends_with("(in `#/properties/a~1b/anyOf/1`)"),
        "{complaint}"
    );
    let lenient = Constraint::JsonSchema {
        schema: list,
        strict: false,
    };
    accepts(&lenient, &[r#"{"a/b": [1, 1]}"#]);
    let complaint = complaint_about(&schema(json!({
        "$defs": {"x": {"type": "strong"}},
        "properties": {"a": {"$ref": "#/$defs/x"}},
    })));
    assert!(complaint.ends_with("(in `#/$defs/x`)"), "{complaint}");
    let complaint = complaint_about(&schema(json!({"$ref": "#/$defs/none"})));
    assert!(complaint.contains("none"), "{complaint}");
    for nonsense in [json!("string"), json!(["a"]), json!(false)] {
        complaint_about(&schema(nonsense));
    }
}

#[test]
fn a_regular_expression_matches_the_whole_answer() {
    let version = Constraint::Regex(r"v\d+(\.[0-9]{1,2}){0,2}/?".into());
    accepts(&version, &["v1", "v12.3.44", "v1.2/"]);
    begins(&version, &["v", "v1."]);
    refuses(&version, &["1", "v1.123", "v1.2.3.4", " v1"]);
    accepts(&Constraint::Regex("^ab$".into()), &["ab"]);
    accepts(
        &Constraint::Regex("(?s:.)*".into()),
        &["", "a\nb", "<think>"],
    );
    for broken in ["(", "[z-a]", r"(?=a)b", r"a\b"] {
        complaint_about(&Constraint::Regex(broken.into()));
    }
}

#[test]
fn of_choices_one_comes_whole() {
    let choices = ["yes", "yes, but", "no\n\"/", "é"].map(str::to_owned);
    let choice = Constraint::Choice(choices.to_vec());
    accepts(&choice, &["yes", "yes, but", "no\n\"/", "é"]);
    begins(&choice, &["", "ye", "yes, ", "no"]);
    refuses(&choice, &["yes!", "No", "yesno"]);
    complaint_about(&Constraint::Choice(Vec::new()));
}

#[test]
fn a_lark_grammar_can_hold_a_schema() {
    let grammar = r#"
        start: "answer: " value ("," value)*
        value: NUMBER | %json {"enum": [true]}
        NUMBER: /[0-9]+/
    "#;
    let lark = Constraint::Lark(grammar.into());
    accepts(&lark, &["answer: 1", "answer: 12,true"]);
    refuses(&lark, &["1", "answer: x", "answer: 1,,"]);
    let complaint = complaint_about(&Constraint::Lark("start: missing".into()));
    assert!(complaint.contains("missing"), "{complaint}");
    complaint_about(&Constraint::Lark("start: (".into()));
    complaint_about(&Constraint::Lark(String::new()));
}

#[test]
fn a_gbnf_grammar_may_recurse() {
    let grammar = r#"
        root ::= expression "\n"
        expression ::= term ([-+*/] term)*
        term ::= number | "(" expression ")" ws
        number ::= ("0" | [1-9] [0-9]*) ("." [0-9]{1,2})? ws
        ws ::= " "?
    "#;
    let gbnf = Constraint::Gbnf(grammar.into());
    accepts(&gbnf, &["1\n", "(10 +2.50)*(3)\n", "((0))\n"]);
    begins(&gbnf, &["1", "(1", "((1) ", "1.5"]);
    refuses(&gbnf, &["01", "1.234", "(1\n", ")", "+", "1  "]);
    let flat = Constraint::Gbnf("root ::= \"ab\" \"cd\" | \"abc\" | [^a]".into());
    accepts(&flat, &["abcd", "abc", "é", "\n"]);
    refuses(&flat, &["abcde", "a!"]);
    complaint_about(&Constraint::Gbnf("root ::= nothing".into()));
}

#[test]
fn control_tokens_are_no_text_and_text_is_no_control_token() {
    let anything = Constraint::Regex("(?s:.)*".into());
    let mut matcher = compile(&anything).expect("valid");
    matcher.compute_mask().expect("a way on");
    // The end is allowed since the empty text is an answer; the other control token stands for no text.
    assert!(allows(&mut matcher, END));
    assert!(!allows(&mut matcher, 1));
    assert!(allows(&mut matcher, 2), "a user-defined token is text");
    accepts(&anything, &["<|tool|>"]);
    let text = Constraint::Lark(r#"start: "<|tool|>""#.into());
    let mut matcher = compile(&text).expect("valid");
    matcher.compute_mask().expect("a way on");
    assert!(!allows(&mut matcher, 1));
    // A grammar that names the token means the token.
    let token = Constraint::Lark(r#"start: <|tool|> "x""#.into());
    let mut matcher = compile(&token).expect("valid");
    matcher.compute_mask().expect("a way on");
    assert_eq!(set(&matcher), [1]);
    matcher.accept(1).expect("allowed");
    assert!(!matcher.is_accepting());
    complaint_about(&Constraint::Lark("start: <|absent|>".into()));
}

#[test]
fn a_control_token_in_brackets_is_no_token_number() {
    let tokenizer = bpe("default", &[("[EOS]", CONTROL), ("[5]", CONTROL)], &[]);
    let compiler = ConstraintCompiler::new(&tokenizer).expect("valid");
    let lark = Constraint::Lark("start: <[5]>".into());
    let mut matcher = compiler.compile(&lark).expect("valid");
    matcher.compute_mask().expect("a way on");
    assert_eq!(set(&matcher), [5]);
}

#[test]
fn an_answer_stops_where_nothing_can_follow() {
    let mut matcher = compile(&Constraint::Choice(vec!["yes".into()])).expect("valid");
    let tokens = words().encode("yes", crate::Special::Text);
    for &token in &tokens {
        assert!(!matcher.is_stopped() && !matcher.is_accepting());
        matcher.compute_mask().expect("a way on");
        matcher.accept(token).expect("allowed");
    }
    assert!(matcher.is_stopped() && matcher.is_accepting());
    matcher.compute_mask().expect("the end");
    assert_eq!(set(&matcher), [END]);
    let mut open = compile(&Constraint::Regex("a+".into())).expect("valid");
    let a = words().encode("a", crate::Special::Text)[0];
    open.accept(a).expect("allowed");
    assert!(open.is_accepting() && !open.is_stopped());
    open.compute_mask().expect("a way on");
    assert_eq!(set(&open), [END, a]);
}

#[test]
fn without_a_way_on_there_is_a_dead_end() {
    // The vocabulary has no token for the snowman's bytes.
    let snowman = Constraint::Regex("a☃".into());
    let mut matcher = compile(&snowman).expect("valid");
    let a = words().encode("a", crate::Special::Text)[0];
    matcher.compute_mask().expect("a way on");
    matcher.accept(a).expect("allowed");
    assert!(matches!(matcher.compute_mask(), Err(TextError::DeadEnd)));
    let mut wrong = compile(&Constraint::Regex("a".into())).expect("valid");
    assert!(wrong.accept(a + 1).is_err());
}

#[test]
fn a_copy_shares_nothing() {
    let mut first = compile(&Constraint::JsonObject).expect("valid");
    let mut second = first.clone();
    let brace = words().encode("{", crate::Special::Text)[0];
    first.compute_mask().expect("a way on");
    second.compute_mask().expect("a way on");
    let before = set(&second);
    first.accept(brace).expect("allowed");
    first.compute_mask().expect("a way on");
    second.compute_mask().expect("a way on");
    assert_eq!(set(&second), before);
    assert_ne!(set(&first), before);
}

#[test]
fn bytes_and_words_of_a_sentencepiece_vocabulary_say_the_same() {
    let mut tokens: Vec<(String, i32, f32)> = vec![
        ("<unk>".into(), UNKNOWN, 0.0),
        ("<s>".into(), CONTROL, 0.0),
        ("</s>".into(), CONTROL, 0.0),
    ];
    tokens.extend((0..=255).map(|byte| (format!("<0x{byte:02X}>"), BYTE, 0.0)));
    for (score, text) in (1_u8..).zip(["a", "▁", "▁a", "aa", "☃"]) {
        tokens.push((text.into(), NORMAL, -f32::from(score)));
    }
    tokens.push(("gone".into(), UNUSED, 0.0));
    let tokens: Vec<(&str, i32, f32)> = tokens
        .iter()
        .map(|(t, k, s)| (t.as_str(), *k, *s))
        .collect();
    let file = file("llama", &tokens, |writer| writer);
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("valid");
    let id = |text: &str| {
        (0..)
            .find(|&id| tokens[id as usize].0 == text)
            .expect("there")
    };
    let byte = |byte: u8| 3 + u32::from(byte);
    let compiler = ConstraintCompiler::new(&tokenizer).expect("valid");
    let allowed = |constraint: Constraint, before: &[u32]| {
        let mut matcher = compiler.compile(&constraint).expect("valid");
        for &token in before {
            matcher.compute_mask().expect("a way on");
            assert!(allows(&mut matcher, token), "{token}");
            matcher.accept(token).expect("allowed");
        }
        matcher.compute_mask().expect("a way on");
        set(&matcher)
    };
    let regex = |regex: &str| Constraint::Regex(regex.into());
    // The word and its byte, not the word with a blank.
    assert_eq!(
        allowed(regex("[ab]c"), &[]),
        [byte(b'a'), byte(b'b'), id("a")]
    );
    let mut expected = vec![byte(b'a'), id("a"), id("aa")];
    assert_eq!(allowed(regex("a+b"), &[]), expected);
    expected = vec![byte(b' '), id("▁"), id("▁a")];
    expected.sort_unstable();
    assert_eq!(allowed(regex("( a|  )b"), &[]), expected);
    let snow = allowed(regex("[☃☂]"), &[]);
    assert_eq!(snow, [byte(0xE2), id("☃")]);
    assert_eq!(
        allowed(regex("[☃☂]"), &[byte(0xE2), byte(0x98)]),
        [byte(0x82), byte(0x83)]
    );
}

/// The tokens of the mask.
fn set(matcher: &Matcher) -> Vec<u32> {
    let bits = matcher.mask().iter().zip((0..).step_by(32));
    bits.flat_map(|(&word, first)| {
        (0..32)
            .filter(move |bit| word >> bit & 1 == 1)
            .map(move |bit| first + bit)
    })
    .collect()
}

#[test]
fn hostile_constraints_are_refused_within_the_limits() {
    let deep = |depth: usize| {
        (0..depth).fold(
            json!({"type": "null"}),
            |inner, _| json!({"type": "array", "items": inner}),
        )
    };
    compile(&schema(deep(40))).expect("not that deep");
    let chain = |rules: usize| {
        let mut lark: String = (0..rules)
            .map(|i| format!("r{i}: \"a\" r{}\n", i + 1))
            .collect();
        lark.push_str(&format!("r{rules}: \"b\"\nstart: r0\n"));
        Constraint::Lark(lark)
    };
    on_a_deep_stack(move || {
        assert!(compile(&chain(7_000)).is_ok_and(|mut matcher| matcher.compute_mask().is_ok()));
        for regex in [
            "(a{1000}){1000}{1000}",
            "((((((((((a{9}){9}){9}){9}){9}){9}){9}){9}){9}){9})",
        ] {
            // Either is an answer; none may hang or end the process.
            _ = compile(&Constraint::Regex(regex.into())).map(|mut matcher| matcher.compute_mask());
        }
        let parens = format!("{}a{}", "(".repeat(60_000), ")".repeat(60_000));
        complaint_about(&Constraint::Regex(parens.clone()));
        complaint_about(&Constraint::Lark(format!(
            "start: {}",
            parens.replace('a', "\"a\"")
        )));
        complaint_about(&Constraint::Gbnf(format!(
            "root ::= {}",
            parens.replace('a', "\"a\"")
        )));
        complaint_about(&Constraint::Choice(vec!["x".repeat(MAX_BYTES + 1)]));
    });
}

fn on_a_deep_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new()
        .stack_size(256 << 20)
        .spawn(work);
    thread.expect("a thread").join().expect("no panic");
}

/// A schema, and a check that an answer fits it.
#[derive(Debug, Clone)]
enum Shape {
    Null,
    Bool,
    Integer(i8, i8),
    Text(usize, usize),
    Enum(Vec<String>),
    List(Box<Shape>, usize, usize),
    Object(Vec<(String, Shape, bool)>),
    Either(Vec<Shape>),
}

impl Shape {
    fn schema(&self) -> Value {
        match self {
            Self::Null => json!({"type": "null"}),
            Self::Bool => json!({"type": "boolean"}),
            Self::Integer(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
            Self::Text(min, max) => json!({"type": "string", "minLength": min, "maxLength": max}),
            Self::Enum(texts) => json!({"enum": texts}),
            Self::List(item, min, max) => {
                json!({"type": "array", "items": item.schema(), "minItems": min, "maxItems": max})
            }
            Self::Object(members) => {
                let properties: Map = members
                    .iter()
                    .map(|(k, s, _)| (k.clone(), s.schema()))
                    .collect();
                let required: Vec<&String> = members.iter().filter(|m| m.2).map(|m| &m.0).collect();
                json!({
                    "type": "object", "properties": properties, "required": required,
                    "additionalProperties": false,
                })
            }
            Self::Either(shapes) => {
                json!({"anyOf": shapes.iter().map(Self::schema).collect::<Vec<_>>()})
            }
        }
    }

    fn fits(&self, value: &Value) -> bool {
        match self {
            Self::Null => value.is_null(),
            Self::Bool => value.is_boolean(),
            // `-0` is an integer, which `as_i64` does not know.
            Self::Integer(min, max) => value.as_f64().is_some_and(|n| {
                n.fract() == 0.0 && (f64::from(*min)..=f64::from(*max)).contains(&n)
            }),
            Self::Text(min, max) => value
                .as_str()
                .is_some_and(|text| (*min..=*max).contains(&text.chars().count())),
            Self::Enum(texts) => value
                .as_str()
                .is_some_and(|text| texts.iter().any(|t| t == text)),
            Self::List(item, min, max) => value.as_array().is_some_and(|items| {
                (*min..=*max).contains(&items.len()) && items.iter().all(|value| item.fits(value))
            }),
            Self::Object(members) => value.as_object().is_some_and(|object| {
                let known = object.keys().all(|key| members.iter().any(|m| &m.0 == key));
                known
                    && members
                        .iter()
                        .all(|(key, shape, required)| match object.get(key) {
                            Some(value) => shape.fits(value),
                            None => !required,
                        })
            }),
            Self::Either(shapes) => shapes.iter().any(|shape| shape.fits(value)),
        }
    }
}

type Map = serde_json::Map<String, Value>;

fn shapes() -> impl Strategy<Value = Shape> {
    let key = "[a-c]{1,2}";
    let leaf = prop_oneof![
        Just(Shape::Null),
        Just(Shape::Bool),
        (-100..0_i8, 0..100_i8).prop_map(|(min, max)| Shape::Integer(min, max)),
        (0..3_usize, 3..6_usize).prop_map(|(min, max)| Shape::Text(min, max)),
        prop::collection::vec("[a-z\"\\\\é]{0,3}", 1..4).prop_map(Shape::Enum),
    ];
    leaf.prop_recursive(3, 20, 4, move |inner| {
        let member = (key, inner.clone(), any::<bool>());
        prop_oneof![
            (inner.clone(), 0..2_usize, 2..4_usize).prop_map(|(item, min, max)| Shape::List(
                Box::new(item),
                min,
                max
            )),
            prop::collection::vec(member, 0..4).prop_map(|mut members| {
                members.sort_by(|a, b| a.0.cmp(&b.0));
                members.dedup_by(|a, b| a.0 == b.0);
                Shape::Object(members)
            }),
            prop::collection::vec(inner, 1..4).prop_map(Shape::Either),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is drawn from the masks is JSON that fits, however the vocabulary cuts it.
    #[test]
    fn random_answers_fit_random_schemas(shape in shapes(), mut draws in any::<u64>()) {
        let tokenizer = words();
        let compiler = compiler();
        let mut matcher = compiler.compile(&schema(shape.schema())).expect("a plain schema");
        let mut answer = Vec::new();
        for length in 0.. {
            prop_assert!(length < 4000, "no end to {:?}", String::from_utf8_lossy(&answer));
            matcher.compute_mask().expect("a way on");
            let allowed = set(&matcher);
            // SplitMix64's increment; rather the end than more.
            draws = draws.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x9e37_79b9_7f4a_7c15);
            let token = allowed[(draws >> 33) as usize % allowed.len()];
            if allowed.contains(&END) && (token == END || length > 200) {
                prop_assert!(matcher.is_accepting());
                break;
            }
            answer.extend_from_slice(tokenizer.piece(token));
            matcher.accept(token).expect("an allowed token");
            if matcher.is_stopped() {
                break;
            }
        }
        let value: Value = serde_json::from_slice(&answer).expect("JSON");
        prop_assert!(shape.fits(&value), "{value} for {}", shape.schema());
    }
}
