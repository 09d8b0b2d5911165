//! Values as they are shown, and strings stored end to end.

use crate::{Array, Strings, Value};

#[test]
fn strings_keep_their_bounds() {
    let strings: Strings = ["one", "", "drei", "\u{10348}"].into_iter().collect();
    let all: Vec<&[u8]> = strings.iter().collect();
    assert_eq!(
        all,
        [b"one".as_slice(), b"", b"drei", "\u{10348}".as_bytes()]
    );
    assert_eq!(strings.get(3), Some("\u{10348}".as_bytes()));
    assert_eq!(strings.get(4), None);
    assert_eq!((strings.len(), strings.is_empty()), (4, false));
    assert!(Strings::default().is_empty());
}

#[test]
fn values_show_themselves() {
    let shown = |value: Value| value.to_string();
    assert_eq!(shown(7_u8.into()), "7");
    assert_eq!(shown(true.into()), "true");
    assert_eq!(shown(0.5_f32.into()), "0.5");
    assert_eq!(shown("a\n\"b\"".into()), r#""a\n\"b\"""#);
    assert_eq!(shown(vec!["x", "y"].into()), r#"["x", "y"]"#);
    assert_eq!(shown(Vec::<u32>::new().into()), "[]");
    assert_eq!(shown(vec![1_i32; 8].into()), "[1, 1, 1, 1, 1, 1, 1, 1]");
    assert_eq!(
        shown((0..9_i64).collect::<Vec<_>>().into()),
        "[0, 1, 2, 3, 4, 5, 6, 7, … 9 in all]"
    );
    let nested = Array::Array(vec![Array::U8(vec![1, 2]), Array::Bool(vec![false])]);
    assert_eq!(shown(nested.into()), "[[1, 2], [false]]");
    assert_eq!(shown(Value::String(vec![b'a', 0xff])), "\"a\u{fffd}\"");
}
