//! What is compiled once, and what comes of a thread that is not there.

use andante_text::Constraint;

use super::*;
use crate::clock::SystemClock;
use crate::engine::tests::text_stack;

fn constraints() -> Constraints {
    Constraints::new(text_stack().tokenizer)
}

#[test]
fn the_latest_constraints_stay_compiled() {
    let constraints = constraints();
    let regex = |index: usize| Constraint::Regex(format!("a{{{}}}", index + 1));
    let first = constraints.compile(0, &regex(0)).expect("valid");
    for index in 1..KEPT {
        constraints.compile(0, &regex(index)).expect("valid");
    }
    let again = constraints.compile(0, &regex(0)).expect("valid");
    assert!(Arc::ptr_eq(&first, &again));
    // It is the latest now: the next one takes the place of the second.
    constraints.compile(0, &regex(KEPT)).expect("valid");
    assert!(constraints.recall(0, &regex(0)).is_some());
    assert!(constraints.recall(0, &regex(1)).is_none());
    assert!(constraints.recall(0, &regex(2)).is_some());
}

#[test]
fn what_cannot_be_compiled_is_told_every_time() {
    let constraints = constraints();
    let broken = Constraint::Regex("(".into());
    let complaint =
        |result: Result<_, TextError>| result.map(|_| ()).expect_err("broken").to_string();
    let first = complaint(constraints.compile(0, &broken));
    let kept = constraints
        .recall(0, &broken)
        .expect("it is not compiled again");
    assert_eq!(complaint(kept), first);
    assert_eq!(complaint(constraints.compile(0, &broken)), first);
}

#[test]
fn what_was_compiled_for_one_salt_is_not_there_for_another() {
    let constraints = constraints();
    let constraint = Constraint::Regex("a+".into());
    let own = constraints.compile(1, &constraint).expect("valid");
    assert!(constraints.recall(2, &constraint).is_none());
    let other = constraints.compile(2, &constraint).expect("valid");
    assert!(!Arc::ptr_eq(&own, &other));
}

#[test]
fn a_grammar_may_go_deep() {
    let rules = 7_000;
    let mut lark = String::from("start: r0\n");
    lark.extend((0..rules).map(|i| format!("r{i}: \"a\" r{}\n", i + 1)));
    lark.push_str(&format!("r{rules}: \"b\"\n"));
    constraints()
        .compile(0, &Constraint::Lark(lark))
        .expect("within the limits");
}

#[test]
fn masks_are_found_with_and_without_their_thread() {
    let start = constraints()
        .compile(0, &Constraint::Choice(vec!["ab".into()]))
        .expect("valid");
    let form = Form {
        start,
        whole: false,
    };
    let masks = Masks::spawn(Arc::new(SystemClock::new()));
    for masks in [masks.without_thread(), masks] {
        let mut guide = Guide::new(&form, &masks);
        let mut matcher = guide.next().expect("a way on");
        assert!(matcher.accept(u32::from(b'b')).is_err());
        let mut guide = Guide::new(&form, &masks);
        matcher = guide.next().expect("a way on");
        matcher.accept(u32::from(b'a')).expect("allowed");
        guide.go_on(matcher);
        matcher = guide.next().expect("a way on");
        assert_eq!(matcher.mask()[3], 1 << (b'b' - 96));
        assert_eq!(guide.take_time().masks, 2);
        // A reader that has gone is no reason to stop.
        guide.go_on(matcher);
        drop(guide);
    }
}
