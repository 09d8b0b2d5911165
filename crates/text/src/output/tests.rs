//! Streaming must give what the whole text would give, whatever the pieces.

use proptest::prelude::*;

use super::OutputStream;
use crate::Part;

/// The text of parts that are nothing else.
fn text(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => text.as_str(),
        other => panic!("no text: {other:?}"),
    });
    texts.collect()
}

fn push(stream: &mut OutputStream, piece: &[u8]) -> String {
    text(&stream.push(piece).parts)
}

/// Pushes the pieces and returns all the text and the stop string.
fn run(stop: &[&str], pieces: &[&[u8]]) -> (String, Option<usize>) {
    let mut stream = OutputStream::new(stop.iter().map(|&s| s.to_owned()).collect());
    let mut said = String::new();
    let mut stopped = None;
    for piece in pieces {
        let output = stream.push(piece);
        said.push_str(&text(&output.parts));
        stopped = output.stopped;
    }
    said.push_str(&text(&stream.finish()));
    (said, stopped)
}

/// The definition, slowly: the first position at which a stop string is complete.
fn reference(stop: &[String], bytes: &[u8]) -> (String, Option<usize>) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    for end in 0..=text.len() {
        let hit = stop
            .iter()
            .enumerate()
            .filter(|(_, s)| !s.is_empty() && text.as_bytes()[..end].ends_with(s.as_bytes()))
            .max_by_key(|(i, s)| (s.len(), std::cmp::Reverse(*i)));
        if let Some((index, s)) = hit {
            return (text[..end - s.len()].to_owned(), Some(index));
        }
    }
    (text, None)
}

#[test]
fn a_character_split_over_tokens_appears_once_whole() {
    let mut stream = OutputStream::new(vec![]);
    let euro = "€".as_bytes();
    assert_eq!(push(&mut stream, &euro[..1]), "");
    assert_eq!(push(&mut stream, &euro[1..2]), "");
    assert_eq!(push(&mut stream, &euro[2..]), "€");
    assert!(stream.finish().is_empty());
}

#[test]
fn broken_bytes_become_replacement_characters() {
    assert_eq!(run(&[], &[b"a\xE2", b"\x82", b"b"]).0, "a\u{FFFD}b");
    assert_eq!(run(&[], &[b"\xF0\x9F", b"\x98"]).0, "\u{FFFD}");
    assert_eq!(
        run(&[], &[b"\xFF", b"\xC0\x80"]).0,
        "\u{FFFD}\u{FFFD}\u{FFFD}"
    );
    // A surrogate encoded as UTF-8 is three errors.
    assert_eq!(run(&[], &[b"\xED\xA0\x80"]).0, "\u{FFFD}\u{FFFD}\u{FFFD}");
}

#[test]
fn the_beginning_of_a_stop_string_is_held_and_released() {
    let mut stream = OutputStream::new(vec!["###".to_owned()]);
    assert_eq!(push(&mut stream, b"a#"), "a");
    assert_eq!(push(&mut stream, b"#"), "");
    assert_eq!(push(&mut stream, b"b"), "##b");
    assert_eq!(push(&mut stream, b"##"), "");
    let end = stream.push(b"#tail");
    assert_eq!((end.parts, end.stopped), (vec![], Some(0)));
    assert_eq!(push(&mut stream, b"more"), "");
    assert!(stream.finish().is_empty());
}

#[test]
fn the_earliest_stop_string_wins() {
    assert_eq!(run(&["cd", "b"], &[b"abcd"]), ("a".to_owned(), Some(1)));
    assert_eq!(run(&["c", "abc"], &[b"xabc"]), ("x".to_owned(), Some(1)));
    assert_eq!(run(&["", "x"], &[b"abc"]), ("abc".to_owned(), None));
    assert_eq!(run(&["aab"], &[b"aa", b"ab"]), ("a".to_owned(), Some(0)));
}

#[test]
fn a_held_beginning_is_released_at_the_end() {
    assert_eq!(run(&["stop"], &[b"x st", b"o"]), ("x sto".to_owned(), None));
    assert_eq!(
        run(&["é!"], &["é".as_bytes(), b"\xC3"]),
        ("é\u{FFFD}".to_owned(), None)
    );
}

/// Bytes that make UTF-8 trouble and stop strings likely.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "ab", "€", "é", "😀", "\u{FFFD}"]).prop_map(|s| s.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ];
    prop::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
}

fn stops() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[ab€é\u{FFFD}]{0,4}", 0..4)
}

proptest! {
    #[test]
    fn any_split_gives_the_text_of_the_whole(
        bytes in bytes(),
        stop in stops(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let mut pieces = Vec::new();
        let mut start = 0;
        for cut in cuts {
            pieces.push(&bytes[start..cut]);
            start = cut;
        }
        let names: Vec<&str> = stop.iter().map(String::as_str).collect();
        let (text, stopped) = run(&names, &pieces);
        let (want, want_stopped) = reference(&stop, &bytes);
        prop_assert_eq!(text, want);
        // A stop string completed only by the flush of a broken character ends the text, but no push can report it.
        if stopped.is_some() {
            prop_assert_eq!(stopped, want_stopped);
        }
    }
}
