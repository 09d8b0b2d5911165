//! The text of custom calls, from JSON that is still growing.

use super::*;

#[test]
fn the_text_grows_with_the_json_and_never_shrinks() {
    let whole = r#" {"input": "*** Begin\n+\"h\u00e9llo\" \ud83d\ude42 ü\\"}"#;
    let expected = "*** Begin\n+\"héllo\" 🙂 ü\\";
    let mut told = String::new();
    for end in (0..=whole.len()).filter(|&end| whole.is_char_boundary(end)) {
        let so_far = input_so_far(&whole[..end]);
        assert!(so_far.starts_with(&told), "{so_far:?} after {told:?}");
        assert!(expected.starts_with(&so_far), "{so_far:?}");
        told = so_far;
    }
    assert_eq!(told, expected);
    assert_eq!(input(whole), expected);
}

#[test]
fn what_is_no_such_json_is_the_text_itself() {
    for (arguments, text) in [
        ("*** Begin Patch", "*** Begin Patch"),
        ("\"quoted\"", "quoted"),
        (r#"{"patch": "x"}"#, r#"{"patch": "x"}"#),
        (r#"{"input": "cut he"#, "cut he"),
        (r#"{"input": 7}"#, r#"{"input": 7}"#),
        ("", ""),
    ] {
        assert_eq!(input(arguments), text);
    }
}
