//! Cost models from names and JSON.

use andante_sched::{Shape, micros};

use super::*;

const JSON: &str = r#"{"decode_us": 1000, "prefill_us": 2000.5, "mixed_us": 3000, "token_us": 10, "attend_us": 0.001,
                       "context_us": 0, "row_us": 20, "margin_permille": [1150, 1150, 1150]}"#;

#[test]
fn the_named_model_is_the_published_one() {
    let cost = named("a100").unwrap();
    let mut shape = Shape {
        rows: 2,
        context: 1010,
        ..Shape::default()
    };
    // 8000 + 2 · 20 + 1010 · 0.065 = 8105.65
    assert_eq!(cost.step_us(shape), 8105);
    shape.add_range(1000, 100);
    // 9000 + 40 + 65.65 + 100 · 110 + 0.0026 · 100 · (1000 + 101 / 2) = 273.13
    assert_eq!(cost.step_us(shape), 20_378);
}

#[test]
fn json_is_the_model_or_what_a_server_shows() {
    let cost = parse(JSON).unwrap();
    assert_eq!((cost.decode, cost.row), (micros(1000), micros(20)));
    assert_eq!(cost.prefill, micros(4001) / 2);
    let whole = parse(&format!(
        r#"{{"mode": "mix", "cost": {JSON}, "tenants": []}}"#
    ))
    .unwrap();
    assert_eq!(whole, cost);
}

#[test]
fn what_is_no_model_is_refused() {
    assert!(parse("{}").is_err());
    assert!(parse(&JSON.replace("1000", "-1")).is_err());
    assert!(parse(&JSON.replace("1000", "1e300")).is_err());
    assert!(named("no such file").is_err());
}
