//! Each rule must be able to fail.

use std::collections::BTreeSet;

use super::{check_named_tests, check_rust, check_text, function_names, vendored};

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

/// What is said of a folder with one library and its licence, both of which hold `abc`.
fn vendored(manifest: &str, there: &[&str], content: &[u8]) -> Vec<String> {
    let mut breaches = Vec::new();
    let there = there.iter().map(|&name| name.to_owned()).collect();
    let read = |name: &str| {
        ["a.js", "a.LICENSE"]
            .contains(&name)
            .then(|| content.to_vec())
    };
    vendored::check_manifest(manifest, there, read, &mut breaches).expect("JSON");
    breaches
}

#[test]
fn what_others_wrote_is_as_it_was_taken() {
    // FIPS 180-2, B.1.
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let manifest = format!(
        r#"[{{"package": "a", "version": "1.0.0", "licence": "MIT", "source": "dist/a.js", "file": "a.js", "sha256": "{abc}",
            "licence_file": "a.LICENSE", "licence_sha256": "{abc}"}}]"#
    );
    let there = ["a.js", "a.LICENSE", "manifest.json"];
    assert!(vendored(&manifest, &there, b"abc").is_empty());
    assert_eq!(vendored(&manifest, &there, b"abd").len(), 2);
    let more = ["a.js", "a.LICENSE", "manifest.json", "b.js"];
    assert_eq!(vendored(&manifest, &more, b"abc").len(), 1);
    let gone = manifest.replace("a.LICENSE", "b.LICENSE");
    assert_eq!(vendored(&gone, &there, b"abc").len(), 2);
    let unknown = manifest.replace("MIT", "AGPL-3.0");
    assert_eq!(vendored(&unknown, &there, b"abc").len(), 1);
    let nameless = manifest.replace("1.0.0", "");
    assert_eq!(vendored(&nameless, &there, b"abc").len(), 1);
}
