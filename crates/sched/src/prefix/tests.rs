//! Keys are looked up with their tokens, never by hash alone.

use super::*;

#[test]
fn equal_keys_of_different_contents_are_told_apart() {
    // One key for everything: only comparing helps.
    let mut index = PrefixIndex::with_buckets(8, 2, 1);
    index.insert(0, NONE, 7, &[1, 2]);
    index.insert(1, NONE, 7, &[3, 4]);
    index.insert(2, 0, 7, &[3, 4]);
    assert_eq!(index.find(NONE, 7, &[1, 2]), Some(0));
    assert_eq!(index.find(NONE, 7, &[3, 4]), Some(1));
    assert_eq!(
        index.find(0, 7, &[3, 4]),
        Some(2),
        "same tokens after another prefix"
    );
    assert_eq!(index.find(1, 7, &[3, 4]), None);
    assert_eq!(index.find(NONE, 7, &[5, 6]), None);
    assert_eq!(index.find(NONE, 8, &[1, 2]), None);
    index.remove(1);
    assert_eq!(index.find(NONE, 7, &[3, 4]), None);
    assert_eq!(
        (index.find(NONE, 7, &[1, 2]), index.find(0, 7, &[3, 4])),
        (Some(0), Some(2))
    );
}

#[test]
fn keys_depend_on_every_token_and_on_what_was_before() {
    let key = chain_key(root_key(0), &[1, 2, 3]);
    assert_ne!(key, chain_key(root_key(0), &[1, 2, 4]));
    assert_ne!(key, chain_key(root_key(0), &[2, 1, 3]));
    assert_ne!(chain_key(key, &[1, 2, 3]), key);
    assert_ne!(
        chain_key(root_key(0), &[1, 2]),
        chain_key(root_key(0), &[1, 2, 0])
    );
}
