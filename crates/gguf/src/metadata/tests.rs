//! Typed getters: what converts, and the messages for what does not.

use super::Metadata;
use crate::{Error, Value};

fn metadata(pairs: impl IntoIterator<Item = (&'static str, Value)>) -> Metadata {
    let mut metadata = Metadata::default();
    for (key, value) in pairs {
        assert!(metadata.set(key, value).is_none());
    }
    metadata
}

fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.expect_err("an error").to_string()
}

#[test]
fn integers_convert_when_they_fit() {
    let metadata = metadata([
        ("u8", 200_u8.into()),
        ("i8", (-1_i8).into()),
        ("i16", 300_i16.into()),
        ("u16", 65_535_u16.into()),
        ("i32", 7_i32.into()),
        ("u32", u32::MAX.into()),
        ("i64", i64::MAX.into()),
        ("u64", (u64::from(u32::MAX) + 1).into()),
    ]);
    let u32 = |key| metadata.u32(key).expect(key);
    assert_eq!(
        [u32("u8"), u32("i16"), u32("u16")],
        [Some(200), Some(300), Some(65_535)]
    );
    assert_eq!(
        [u32("i32"), u32("u32"), u32("absent")],
        [Some(7), Some(u32::MAX), None]
    );
    assert_eq!(metadata.u64("i64").expect("fits"), Some(i64::MAX as u64));
    assert_eq!(metadata.require_u64("u64").expect("fits"), 1 << 32);
    assert_eq!(
        message(metadata.u32("i8")),
        "metadata \"i8\" is -1 (i8), expected an integer of 32 bits without sign"
    );
    assert_eq!(
        message(metadata.u32("u64")),
        "metadata \"u64\" is 4294967296 (u64), expected an integer of 32 bits without sign"
    );
    assert_eq!(
        message(metadata.require_u32("absent")),
        "metadata \"absent\" is missing"
    );
}

#[test]
fn other_scalars_keep_their_kind() {
    let metadata = metadata([
        ("f32", 1.5_f32.into()),
        ("f64", 2.5_f64.into()),
        ("bool", true.into()),
        ("text", "hi".into()),
        ("bytes", Value::String(vec![0xff])),
    ]);
    assert_eq!(metadata.f32("f32").expect("float"), Some(1.5));
    assert_eq!(metadata.require_f32("f64").expect("float"), 2.5);
    assert_eq!(metadata.bool("bool").expect("bool"), Some(true));
    assert_eq!(metadata.str("text").expect("string"), Some("hi"));
    assert_eq!(
        message(metadata.f32("bool")),
        "metadata \"bool\" is true (bool), expected a floating-point number"
    );
    assert_eq!(
        message(metadata.bool("text")),
        "metadata \"text\" is a string, expected a boolean"
    );
    assert_eq!(
        message(metadata.str("bytes")),
        "metadata \"bytes\" is a string that is not UTF-8, expected a UTF-8 string"
    );
    assert_eq!(
        message(metadata.u64("f32")),
        "metadata \"f32\" is 1.5 (f32), expected an integer of 64 bits without sign"
    );
}

#[test]
fn arrays_convert_element_by_element() {
    let metadata = metadata([
        ("u8s", vec![1_u8, 2].into()),
        ("i64s", vec![-5_i64, 5].into()),
        ("f64s", vec![0.25_f64].into()),
        ("bools", vec![true, false].into()),
        ("strings", vec!["a", "b"].into()),
        (
            "bytes",
            [b"\xff".as_slice()]
                .into_iter()
                .collect::<crate::Strings>()
                .into(),
        ),
    ]);
    assert_eq!(metadata.u32s("u8s").expect("fit"), Some(vec![1, 2]));
    assert_eq!(metadata.i32s("i64s").expect("fit"), Some(vec![-5, 5]));
    assert_eq!(metadata.f32s("f64s").expect("floats"), Some(vec![0.25]));
    assert_eq!(
        metadata.bools("bools").expect("bools"),
        Some([true, false].as_slice())
    );
    assert_eq!(
        metadata.strings("strings").expect("strings"),
        Some(vec!["a", "b"])
    );
    assert_eq!(
        metadata
            .require_byte_strings("bytes")
            .expect("strings")
            .get(0),
        Some(b"\xff".as_slice())
    );
    assert_eq!(metadata.strings("absent").expect("absent"), None);
    assert_eq!(
        message(metadata.u32s("i64s")),
        "metadata \"i64s\" is an array of 2 i64, expected an array of integers of 32 bits without sign"
    );
    assert_eq!(
        message(metadata.strings("bytes")),
        "metadata \"bytes\" is an array of 1 string, expected an array of UTF-8 strings"
    );
}

#[test]
fn order_is_that_of_the_file() {
    let metadata = metadata([
        ("b", 1_u32.into()),
        ("a", 2_u32.into()),
        ("c", 3_u32.into()),
    ]);
    let keys: Vec<&str> = metadata.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["b", "a", "c"]);
    assert_eq!((metadata.len(), metadata.is_empty()), (3, false));
    assert_eq!(metadata.get("a"), Some(&Value::U32(2)));
}
