//! A handle is read by its maker alone, and only as it was made.

use super::Seal;

#[test]
fn a_handle_gives_its_text_back_and_does_not_show_it() {
    let seal = Seal::new(&[7; 32]);
    for text in [
        "",
        "a",
        "ab",
        "abc",
        "  First,\nI look. é🙂 ",
        &"long ".repeat(5000),
    ] {
        let handle = seal.seal(text);
        assert_eq!(seal.open(&handle).as_deref(), Some(text));
        assert!(handle.starts_with("ar1_"));
        assert!(
            handle
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        );
        assert_ne!(handle, seal.seal(text), "each has its own nonce");
    }
}

#[test]
fn a_changed_or_foreign_handle_is_refused() {
    let seal = Seal::new(&[7; 32]);
    let handle = seal.seal("what I thought");
    for at in 0..handle.len() {
        let mut changed = handle.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'Q' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert_eq!(seal.open(&changed), None, "byte {at}");
        assert_eq!(seal.open(&handle[..at]), None, "cut at {at}");
    }
    assert_eq!(Seal::new(&[8; 32]).open(&handle), None);
    for foreign in ["", "ar1_", "ar1_A", "ar1_!!!!", "EqQBCgIYAhIM", "ar1_é"] {
        assert_eq!(seal.open(foreign), None);
    }
}
