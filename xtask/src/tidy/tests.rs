//! Each rule must be able to fail.

use std::collections::BTreeSet;

use super::{check_named_tests, check_rust, check_text, function_names};

fn rust_breaches(name: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    check_rust(name, text, &mut breaches);
    breaches
}

#[test]
fn the_repository_is_tidy() {
    super::run(&crate::root()).unwrap();
}

#[test]
fn a_module_without_purpose_is_a_breach() {
    assert!(rust_breaches("crates/text/src/a.rs", "//! Purpose.\n").is_empty());
    assert_eq!(
        rust_breaches("crates/text/src/a.rs", "fn a() {}\n").len(),
        1
    );
}

#[test]
fn unsafe_stays_in_its_rooms() {
    let text = concat!("//! P.\nfn a() { unsafe", " { b() } }\n");
    assert_eq!(rust_breaches("crates/model/src/a.rs", text).len(), 1);
    assert!(rust_breaches("crates/compute/src/cpu/simd/a.rs", text).is_empty());
}

#[test]
fn only_the_program_reads_the_environment() {
    let text = concat!("//! P.\nlet a = std::env::", "var(\"A\");\n");
    assert_eq!(rust_breaches("crates/engine/src/a.rs", text).len(), 1);
    assert!(rust_breaches("crates/cli/src/a.rs", text).is_empty());
}

#[test]
fn files_stop_growing_at_the_limit() {
    let long = format!("//! P.\n{}", "let a = 1;\n".repeat(801));
    assert_eq!(rust_breaches("crates/engine/src/a.rs", &long).len(), 1);
    assert!(rust_breaches("crates/engine/src/a/tests.rs", &long).is_empty());
}

#[test]
fn trailing_space_and_long_pages_are_breaches() {
    let mut breaches = Vec::new();
    check_text("README.md", "a \n", &mut breaches);
    check_text("STYLE.md", &"line\n".repeat(61), &mut breaches);
    assert_eq!(breaches.len(), 2);
}

#[test]
fn a_page_names_tests_that_are_there() {
    let source = "#[test]\nfn it_holds() {}\nasync fn it_waits<T>() {}\n";
    let functions: BTreeSet<String> = function_names(source).map(str::to_owned).collect();
    let page = "| case | test |\n| a | `a::it_holds`, `b::c::it_waits` |\n| `b` | `a::it_held` |\nNot `a::test`.\n";
    let mut breaches = Vec::new();
    check_named_tests("docs/a.md", page, &functions, &mut breaches);
    assert_eq!(breaches, ["docs/a.md: there is no test `a::it_held`"]);
}
