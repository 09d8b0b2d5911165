//! Grammars as llama.cpp has them, and what is wrong with others.

use super::*;

fn translated(source: &str) -> String {
    to_lark(source).expect("a valid grammar")
}

fn complaint_about(source: &str) -> String {
    to_lark(source).expect_err("an invalid grammar").to_string()
}

#[test]
fn rules_without_recursion_become_terminals() {
    let lark =
        translated("root ::= ws \"a\" [0-9]{2,4} ws\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n");
    assert_eq!(
        lark,
        "start: T0\n\
         T0: T1 \"a\" /[\\x{30}-\\x{39}]/{2,4} T1\n\
         T1:  | \" \" | \"\\n\" /[\\x{20}\\x{9}]/{0,20}\n"
    );
}

#[test]
fn runs_in_recursive_rules_become_one_terminal() {
    let lark =
        translated("root ::= [0-9]+ \"!\"? | \"(\" root (\"+\" root)* \")\" ws\nws ::= \" \"*");
    assert_eq!(
        lark,
        "start: r0\n\
         G1: /[\\x{30}-\\x{39}]/+ \"!\"?\n\
         G2: \"(\"\n\
         G4: \"+\"\n\
         g3: G4 r0\n\
         G5: \")\" T1\n\
         r0: G1 | G2 r0 g3* G5\n\
         T1: \" \"*\n"
    );
}

#[test]
fn every_form_of_the_format_is_read() {
    let lark = translated(
        "# a comment\n\
         root ::= a-1 | # goes on\n\
           \"\\x41\\u00e9\\U0001F600\\\"\\\\\" . [^\\]\\\\a-]\n\
         \x20 | (\"x\"\n | \"y\")+ {3} a-1{2,}\r\n\
         a-1 ::= \"\\t\"{0}\n",
    );
    assert_eq!(
        lark,
        "start: T0\n\
         G2: \"x\" | \"y\"\n\
         G1: G2+\n\
         T0: T1 | \"Aé😀\\\"\\\\\" /[\\x{0}-\\x{10ffff}]/ /[^\\x{5d}\\x{5c}\\x{61}\\x{2d}]/ | G1{3,3} T1{2,}\n\
         T1: \"\"\n"
    );
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (source, expected) in [
        ("root := \"a\"", "line 1: `::=` is expected"),
        (
            "root ::= \"a\"\nx ::= [b-a]",
            "line 2: a range ends before it begins",
        ),
        (
            "root ::= \"a",
            "line 1: the grammar ends within a text or class",
        ),
        ("root ::= \"\\q\"", "line 1: there is no escape `\\q`"),
        (
            "root ::= \"\\ud800\"",
            "line 1: an escape names no character",
        ),
        ("root ::= (\"a\"", "line 1: `)` is expected"),
        ("root ::= \"a\" )", "line 1: no rule goes on like this"),
        (
            "root ::= \"a\"{3,2}",
            "line 1: at most is less than at least",
        ),
        (
            "root ::= \"a\"{99999999999}",
            "line 1: a small whole number is expected",
        ),
        (
            "root ::= <think> \"a\"",
            "line 1: tokens in angle brackets are not supported",
        ),
        ("root ::= []", "line 1: a class without characters"),
        (
            "root ::= \"a\"\nroot ::= \"b\"",
            "line 2: a second rule `root`",
        ),
        ("root ::= other | more", "there is no rule `more`"),
        ("a ::= \"a\"", "the grammar has no rule `root`"),
        ("", "the grammar has no rule `root`"),
        ("::=", "line 1: a name is expected"),
    ] {
        assert_eq!(complaint_about(source), expected, "{source}");
    }
}
