//! Who finds which answer. What is done with it is tested in `andante-text`.

use std::sync::Arc;

use andante_gguf::{GgufFile, GgufWriter};
use andante_text::{
    ChatRequest, Dialect, Message, Opening, Part, Prompt, Role, Tokenizer, ToolCall, Turn,
};

use super::{MOST_BYTES, Turns, decode};
use crate::store::Kept;

fn opening() -> (Tokenizer, Opening) {
    let file = GgufWriter::new()
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "default")
        .metadata("tokenizer.ggml.tokens", vec!["a", "<|start|>"])
        .metadata("tokenizer.ggml.token_type", vec![1, 3])
        .metadata("tokenizer.ggml.merges", Vec::<String>::new())
        .finish();
    let file = GgufFile::from_bytes(file).expect("a file just written");
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("a vocabulary");
    let dialect = Arc::new(Dialect::named("hermes", &tokenizer).expect("a dialect"));
    let mut prompt = Prompt::new();
    prompt.push_control(1, "<|start|>");
    let opening = dialect.opening(&[], &prompt);
    (tokenizer, opening)
}

fn call(id: &str) -> [Part; 3] {
    [
        Part::Reasoning("Hm.".into()),
        Part::Call {
            id: id.into(),
            name: "read".into(),
        },
        Part::Arguments("{\"n\":1}".into()),
    ]
}

fn turn(parts: &[Part]) -> Turn {
    let (tokenizer, opening) = opening();
    Turn::new(&opening, &[0], &tokenizer, parts).expect("a turn")
}

fn chat(id: Option<&str>, arguments: &str) -> ChatRequest {
    let mut message = Message::new(Role::Assistant, "");
    message.tool_calls.push(ToolCall {
        id: id.map(str::to_owned),
        name: "read".into(),
        arguments: arguments.into(),
    });
    ChatRequest {
        messages: vec![message],
        ..ChatRequest::default()
    }
}

#[test]
fn a_call_is_found_by_its_id_and_gives_its_reasoning_back() {
    let turns = Turns::default();
    turns.note(7, turn(&call("call_0123")));
    let find = |salt, id, arguments| {
        let mut chat = chat(id, arguments);
        let found = turns.find(salt, &mut chat).len();
        (found, chat.messages[0].reasoning.clone())
    };
    let whole = (1, Some("Hm.".to_owned()));
    assert_eq!(find(7, Some("call_0123"), "{\"n\": 1}"), whole);
    assert_eq!(find(7, Some("toolu_0123"), "{ \"n\" : 1 }"), whole);
    // Another salt, id, none, or something else under its id.
    for (salt, id, arguments) in [
        (8, Some("call_0123"), "{\"n\": 1}"),
        (7, Some("call_0124"), "{\"n\": 1}"),
        (7, None, "{\"n\": 1}"),
        (7, Some("call_0123"), "{\"n\": 2}"),
    ] {
        assert_eq!(find(salt, id, arguments), (0, None));
    }
}

#[test]
fn a_text_is_found_by_itself_and_keeps_its_reasoning() {
    let turns = Turns::default();
    turns.note(
        0,
        turn(&[Part::Reasoning("Hm.".into()), Part::Text("Yes. ".into())]),
    );
    let mut chat = ChatRequest {
        messages: vec![
            Message::new(Role::User, "Yes."),
            Message::new(Role::Assistant, "Yes."),
        ],
        ..ChatRequest::default()
    };
    assert_eq!(turns.find(0, &mut chat).len(), 1);
    assert_eq!(chat.messages[1].reasoning, None);
    chat.messages[1].content = Some("No.".into());
    assert!(turns.find(0, &mut chat).is_empty());
}

#[test]
fn the_oldest_are_forgotten() {
    let turns = Turns::default();
    let long = "a".repeat(MOST_BYTES / 4);
    for id in 0..6 {
        let mut parts = call(&format!("call_{id}")).to_vec();
        parts.push(Part::Text(long.clone()));
        turns.note(0, turn(&parts));
    }
    let found = |id: u32| {
        let mut chat = chat(Some(&format!("call_{id}")), "{\"n\":1}");
        chat.messages[0].content = Some(long.clone());
        turns.find(0, &mut chat).len()
    };
    assert_eq!((0..6).map(found).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1]);
}

#[test]
fn what_a_store_has_kept_is_found_again() {
    let first = Turns::default();
    assert_eq!(first.take_unwritten(), None);
    for id in 0..3 {
        first.note(7, turn(&call(&format!("call_{id}"))));
    }
    let record = first.take_unwritten().expect("it is new");
    assert_eq!(first.take_unwritten(), None, "once is enough");
    assert_eq!(record[..12], [1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    let length = u32::from_le_bytes(record[12..16].try_into().expect("four"));
    assert_eq!(record.len(), 4 + 3 * (12 + length as usize));
    let found = |turns: &Turns, id: u32| {
        let mut chat = chat(Some(&format!("call_{id}")), "{\"n\":1}");
        (
            turns.find(7, &mut chat).len(),
            turns.find(0, &mut chat).len(),
        )
    };
    let second = Turns::default();
    assert!(second.add(&record) && second.add(&record));
    assert_eq!([0, 1, 2].map(|id| found(&second, id)), [(1, 0); 3]);
    assert_eq!(second.lock().order.len(), 3, "read twice, kept once");
    assert_eq!(second.take_unwritten(), None, "it came from there");
    // The latest that fit, in their order.
    assert_eq!(second.latest(record.len()), record);
    let latest = second.latest(record.len() - 1);
    let third = Turns::default();
    assert!(third.add(&latest));
    assert_eq!([0, 1, 2].map(|id| found(&third, id).0), [0, 1, 1]);
    // What is no record changes nothing.
    for wrong in [&record[..3], &record[..record.len() - 1], b"\x02\0\0\0"] {
        assert!(decode(wrong).is_none() && !third.add(wrong));
    }
}
