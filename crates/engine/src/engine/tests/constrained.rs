//! Answers in a form that was asked for: they have it, end where it lets them, and do not depend on who runs beside them.

use andante_text::Constraint;
use proptest::prelude::*;

use super::*;
use crate::sampling::Constrained;

fn constrained(constraint: Constraint, sampling: Sampling) -> Sampling {
    let name = "grammar";
    Sampling {
        constraint: Some(Constrained { constraint, name }),
        ..sampling
    }
}

fn regex(regex: &str) -> Constraint {
    Constraint::Regex(regex.into())
}

fn choice(texts: &[&str]) -> Constraint {
    Constraint::Choice(texts.iter().map(|&text| text.into()).collect())
}

/// Bounded, since the fake model would never end a text by itself.
fn person() -> Constraint {
    let schema = r#"{
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 6},
            "tags": {"type": "array", "items": {"enum": ["x", "yy"]}, "maxItems": 3},
            "age": {"type": "integer", "minimum": 0, "maximum": 150}
        },
        "required": ["name", "tags", "age"],
        "additionalProperties": false
    }"#;
    Constraint::JsonSchema {
        schema: serde_json::from_str(schema).expect("JSON"),
        strict: true,
    }
}

fn warm(seed: u64) -> Sampling {
    Sampling {
        temperature: 1.5,
        seed: Some(seed),
        min_p: 0.0,
        ..greedy(200)
    }
}

#[test]
fn answers_fit_their_schema_at_every_seed() {
    let mut rig = Rig::small();
    let mut answers = BTreeSet::new();
    for seed in 0..20 {
        let answer = rig.answer("WHO", constrained(person(), warm(seed)));
        assert_eq!(answer.reason(), &FinishReason::Stop { sequence: None });
        let value: serde_json::Value = serde_json::from_str(&answer.text).expect(&answer.text);
        let name = value["name"].as_str().expect("a name");
        assert!(name.chars().count() <= 6, "{name}");
        assert!((0..=150).contains(&value["age"].as_i64().expect("an age")));
        let tags = value["tags"].as_array().expect("a list");
        assert!(tags.len() <= 3 && tags.iter().all(|tag| tag == "x" || tag == "yy"));
        answers.insert(answer.text);
    }
    assert!(answers.len() > 15, "they differ");
    rig.assert_empty();
    let status = rig.handle.status();
    assert!(status.masks > 20 * 20, "{}", status.masks);
}

#[test]
fn every_kind_of_constraint_holds() {
    let mut rig = Rig::small();
    let mut answer = |constraint| {
        let answer = rig.answer("SAY", constrained(constraint, greedy(100)));
        assert_eq!(answer.reason(), &FinishReason::Stop { sequence: None });
        answer.text
    };
    assert!(["yes", "no"].contains(&answer(choice(&["yes", "no"])).as_str()));
    let number = answer(regex("-?[1-9][0-9]{2}"));
    assert!(
        number.parse::<i32>().is_ok_and(|n| n.abs() >= 100),
        "{number}"
    );
    let lark = Constraint::Lark("start: \"a\" B\nB: \"b\" | \"bb\"".into());
    assert!(["ab", "abb"].contains(&answer(lark).as_str()));
    assert_eq!(
        answer(Constraint::Gbnf(
            "root ::= \"[\" (root | \"0\") \"]\"".into()
        ))
        .len()
            % 2,
        1
    );
}

#[test]
fn the_end_comes_only_where_the_form_allows_it() {
    // A model that would rather end at once, and one that would rather never.
    let model = FakeModel::new(VOCAB).script(&bytes("STOP"), &[END, END, END]);
    let mut rig = Rig::new(model, &small());
    let answer = rig.answer("STOP", constrained(choice(&["abc"]), greedy(10)));
    assert_eq!(answer.text, "abc");
    let answer = rig.answer(
        "GO",
        constrained(
            choice(&["abc"]),
            Sampling {
                ignore_eos: true,
                ..greedy(10)
            },
        ),
    );
    assert_eq!(
        (answer.text.as_str(), answer.usage().completion_tokens),
        ("abc", 3)
    );
    assert_eq!(answer.reason(), &FinishReason::Stop { sequence: None });
    // Where it is allowed, the model decides.
    let model = FakeModel::new(VOCAB)
        .script(&bytes("END"), &[u32::from(b'z'), END])
        .script(&bytes("ON"), &[u32::from(b'z'); 20]);
    let mut rig = Rig::new(model, &small());
    let answer = rig.answer("END", constrained(regex("z+"), greedy(10)));
    assert_eq!(
        (answer.text.as_str(), answer.usage().completion_tokens),
        ("z", 2)
    );
    let answer = rig.answer("ON", constrained(regex("z+"), greedy(10)));
    assert_eq!(
        (answer.text.as_str(), answer.reason()),
        ("zzzzzzzzzz", &FinishReason::Length)
    );
}

#[test]
fn an_answer_that_is_complete_at_the_limit_is_complete() {
    let mut rig = Rig::small();
    let answer = rig.answer("SAY", constrained(choice(&["abc"]), greedy(3)));
    assert_eq!(answer.reason(), &FinishReason::Stop { sequence: None });
    let answer = rig.answer("SAY", constrained(choice(&["abc"]), greedy(2)));
    assert_eq!(
        (answer.text.as_str(), answer.reason()),
        ("ab", &FinishReason::Length)
    );
}

#[test]
fn stop_strings_end_it_too() {
    let mut rig = Rig::small();
    let sampling = Sampling {
        stop: vec!["cd".into()],
        ..greedy(10)
    };
    let answer = rig.answer("SAY", constrained(choice(&["abcdef"]), sampling));
    assert_eq!(answer.text, "ab");
    assert_eq!(
        answer.reason(),
        &FinishReason::Stop {
            sequence: Some("cd".into())
        }
    );
}

#[test]
fn control_tokens_are_never_said_instead_of_text() {
    let model = FakeModel::new(VOCAB).script(&bytes("X"), &[CONTROL; 8]);
    let mut rig = Rig::new(model, &small());
    let free = rig.answer("X", greedy(8));
    assert_eq!(free.text, "", "the model says control tokens where it may");
    let answer = rig.answer("X", constrained(regex("(?s:.)*"), greedy(8)));
    assert_eq!(
        (answer.text.len(), answer.usage().completion_tokens),
        (8, 8)
    );
}

#[test]
fn a_dead_end_fails_the_request_alone() {
    let mut rig = Rig::small();
    let banned = Sampling {
        logit_bias: vec![(u32::from(b'b'), f32::NEG_INFINITY)],
        ..greedy(10)
    };
    let dead = rig.submit("DEAD", constrained(choice(&["abc"]), banned));
    let alive = rig.submit("ALIVE", constrained(choice(&["abc"]), greedy(10)));
    rig.settle();
    let dead = Answer::of(dead);
    assert_eq!(
        (dead.text.as_str(), dead.end),
        ("a", Event::Failed(Failure::DeadEnd))
    );
    assert_eq!(Answer::of(alive).text, "abc");
    rig.assert_empty();
    assert_eq!(
        rig.handle.status().failures.get(&Failure::DeadEnd),
        Some(&1)
    );
}

#[test]
fn a_constraint_that_makes_no_sense_is_refused_by_name() {
    let rig = Rig::small();
    let sampling = constrained(regex("("), greedy(10));
    let refused = rig
        .handle
        .prepare_text(PromptInput::Text("A".into()), sampling);
    let Err(
        error @ RequestError::Constraint {
            name: "grammar", ..
        },
    ) = refused
    else {
        panic!("{refused:?}");
    };
    assert!(error.to_string().starts_with("grammar: "), "{error}");
}

#[test]
fn logprobs_are_those_of_the_model_without_the_constraint() {
    let mut rig = Rig::small();
    let mut first = |sampling| {
        let mut stream = rig.submit("LOG", sampling);
        rig.settle();
        let events = std::iter::from_fn(|| stream.try_recv());
        let delta = events.filter_map(|event| match event {
            Event::Token(delta) => Some(delta),
            _ => None,
        });
        delta
            .flat_map(|delta| delta.logprobs)
            .next()
            .expect("a token")
    };
    let asked = Sampling {
        logprobs: Some(3),
        ..greedy(4)
    };
    let free = first(asked.clone());
    let bound = first(constrained(regex("[0-9]{4}"), asked));
    assert_eq!(bound.top, free.top);
    assert!(bound.token.bytes[0].is_ascii_digit());
    assert!(bound.token.logprob < free.token.logprob);
}

#[test]
fn several_choices_each_keep_the_form() {
    let mut rig = Rig::small();
    let request = rig.request("N", constrained(person(), warm(1)));
    let streams: Vec<_> = (0..3)
        .map(|seed| {
            rig.handle
                .submit(request.clone().with_seed(seed))
                .expect("room")
        })
        .collect();
    rig.settle();
    let answers: BTreeSet<String> = streams
        .into_iter()
        .map(|stream| Answer::of(stream).text)
        .collect();
    assert_eq!(answers.len(), 3);
    for answer in answers {
        serde_json::from_str::<serde_json::Value>(&answer).expect("JSON");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// The same question has the same answer alone, twice at once, and beside others with other constraints or none.
    #[test]
    fn neighbours_do_not_show(seed in any::<u64>(), others in prop::collection::vec((0..4_usize, any::<u64>()), 1..5)) {
        let config = EngineConfig { sessions: 8, max_queue: 8, ..small() };
        let alone = Rig::new(FakeModel::new(VOCAB), &config).answer("SAME", constrained(person(), warm(seed)));
        let mut rig = Rig::new(FakeModel::new(VOCAB), &config);
        let neighbours: Vec<_> = others
            .iter()
            .map(|&(kind, seed)| {
                let sampling = match kind {
                    0 => warm(seed),
                    1 => constrained(person(), warm(seed)),
                    2 => constrained(Constraint::JsonObject, warm(seed)),
                    _ => constrained(regex("(?s:.){0,60}"), warm(seed)),
                };
                rig.submit("OTHER", sampling)
            })
            .collect();
        let first = rig.submit("SAME", constrained(person(), warm(seed)));
        for _ in 0..3 {
            rig.step();
        }
        let second = rig.submit("SAME", constrained(person(), warm(seed)));
        rig.settle();
        for stream in [first, second] {
            let answer = Answer::of(stream);
            prop_assert_eq!(&answer.text, &alone.text);
            prop_assert_eq!(answer.reason(), alone.reason());
        }
        for stream in neighbours {
            Answer::of(stream);
        }
        rig.assert_empty();
    }
}
