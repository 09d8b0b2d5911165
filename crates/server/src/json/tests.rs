//! Fields: paths, types, numbers at their limits.

use serde_json::{Value, json};

use super::*;

fn complaint<T>(result: Result<T, ApiError>) -> String {
    result.err().expect("a complaint").to_string()
}

#[test]
fn a_complaint_names_the_path_and_both_types() {
    let body =
        json!({"messages": [{"content": "x"}, {"content": 5}], "stop": ["a", null], "n": "1"});
    let body = Field::body(&body).unwrap();
    let second = body
        .get("messages")
        .items()
        .unwrap()
        .unwrap()
        .nth(1)
        .unwrap();
    let wrong = complaint(second.get("content").string());
    assert_eq!(
        wrong,
        "`messages[1].content`: must be a string, got a number"
    );
    let stop = body.get("stop").items().unwrap().unwrap().nth(1).unwrap();
    assert_eq!(
        complaint(stop.string()),
        "`stop[1]`: must be a string, got null"
    );
    assert_eq!(
        complaint(body.get("n").integer(1, 5)),
        "`n`: must be an integer, got a string"
    );
    assert_eq!(
        complaint(body.get("messages").item(0).get("content").bool()),
        "`messages[0].content`: must be a boolean, got a string"
    );
}

#[test]
fn null_is_absent_and_the_first_name_present_counts() {
    let body = json!({"a": null, "b": 2, "c": 3});
    let body = Field::body(&body).unwrap();
    assert_eq!(body.get("a").string().unwrap(), None);
    assert_eq!(
        body.any_of(&["a", "b", "c"]).integer(0, 9).unwrap(),
        Some(2)
    );
    assert_eq!(body.any_of(&["a", "x"]).integer(0, 9).unwrap(), None);
    assert!(
        complaint(
            body.any_of(&["x", "a"])
                .integer(0, 9)
                .and_then(|_| Err::<(), _>(body.get("x").missing()))
        )
        .contains("`x`")
    );
}

#[test]
fn a_body_that_is_no_object_is_refused() {
    for body in [json!([]), json!("x"), json!(1), Value::Null] {
        assert!(complaint(Field::body(&body).map(|_| ())).contains("must be a JSON object"));
    }
}

#[test]
fn integers_are_whole_and_in_range() {
    let read = |text: &str| {
        let body = serde_json::from_str(&format!("{{\"x\":{text}}}")).unwrap();
        Field::body(&body)
            .unwrap()
            .get("x")
            .integer(-1, 100)
            .map_err(|error| error.to_string())
    };
    assert_eq!(read("100"), Ok(Some(100)));
    assert_eq!(read("-1"), Ok(Some(-1)));
    assert_eq!(read("16.0"), Ok(Some(16)));
    assert_eq!(read("1e2"), Ok(Some(100)));
    assert_eq!(
        read("1.5"),
        Err("`x`: must be an integer, got a number".to_owned())
    );
    for out in ["101", "-2", "18446744073709551615", "1e25"] {
        assert!(
            read(out)
                .unwrap_err()
                .starts_with("`x`: must be from -1 to 100, got "),
            "{out}"
        );
    }
    assert!(read("1e300").is_err());
}

#[test]
fn numbers_that_overflow_are_refused() {
    let body = json!({"big": 1e39, "small": 0.5});
    let body = Field::body(&body).unwrap();
    assert!(complaint(body.get("big").number()).starts_with("`big`: out of range"));
    assert_eq!(body.get("small").number().unwrap(), Some(0.5));
}

#[test]
fn seeds_use_all_64_bits() {
    let body = json!({"min": i64::MIN, "max": u64::MAX, "random": -1, "more": 1e20});
    let body = Field::body(&body).unwrap();
    assert_eq!(body.get("min").seed().unwrap(), Some(1 << 63));
    assert_eq!(body.get("max").seed().unwrap(), Some(u64::MAX));
    assert_eq!(body.get("random").seed().unwrap(), None);
    assert!(body.get("more").seed().is_err());
}

#[test]
fn the_wrong_token_is_named() {
    let body = json!({"prompt": [1, 2, -3], "good": [0, 4_294_967_295_u32]});
    let body = Field::body(&body).unwrap();
    let wrong = complaint(body.get("prompt").tokens());
    assert_eq!(wrong, "`prompt[2]`: must be a token id, got -3");
    assert_eq!(body.get("good").tokens().unwrap(), [0, u32::MAX]);
}
