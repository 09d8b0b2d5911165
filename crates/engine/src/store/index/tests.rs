//! What is found, what is given up first, and that no chain gets a hole.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::*;

fn root() -> Key {
    Key::root(&[0; 32])
}

/// The names of a chain of blocks, each with the token that it stands for.
fn chain(tokens: &[u32]) -> Vec<ObjectName> {
    let mut parent = root();
    let mut names = Vec::new();
    for (&token, depth) in tokens.iter().zip(0..) {
        let key = parent.child(&[token]);
        names.push(ObjectName { key, parent, depth });
        parent = key;
    }
    names
}

fn listed(name: ObjectName, bytes: u64, modified_s: u64) -> Listed {
    Listed {
        name,
        bytes,
        modified_s,
    }
}

/// The worth of every leaf and the number of every block's children are what the entries say.
fn check(index: &Index) {
    let mut children: FxHashMap<Key, u32> = FxHashMap::default();
    let mut used = 0;
    for entry in index.entries.values() {
        *children.entry(entry.parent).or_default() += 1;
        used += entry.bytes;
        let before = index.entries.get(&entry.parent);
        match before {
            Some(before) => assert_eq!(before.depth + 1, entry.depth),
            None => assert_eq!(entry.depth, 0, "a chain has a hole"),
        }
    }
    assert_eq!(used, index.used_bytes);
    let mut leaves = BTreeSet::new();
    for (key, entry) in &index.entries {
        assert_eq!(entry.children, children.get(key).copied().unwrap_or(0));
        if entry.children == 0 {
            leaves.insert((index.worth(entry), *key));
        }
    }
    assert_eq!(leaves, index.leaves);
}

/// Empties the index and gives the last token of each block in the order in which it went.
fn order(mut index: Index) -> Vec<Key> {
    let mut gone = Vec::new();
    while let Some(name) = index.victim(&root()) {
        index.evict(&name.key);
        check(&index);
        gone.push(name.key);
    }
    assert_eq!(index.len(), 0);
    gone
}

#[test]
fn leaves_go_before_what_they_continue_and_the_least_used_first() {
    let mut index = Index::new(16);
    let (old, new) = (chain(&[1, 2, 3]), chain(&[1, 4]));
    for name in &old {
        index.insert(name, 4096);
    }
    index.insert(&new[1], 4096);
    for name in &new {
        index.hit(&name.key);
    }
    check(&index);
    let expected = [old[2].key, old[1].key, new[1].key, old[0].key];
    assert_eq!(order(index), expected);
}

#[test]
fn age_counts_in_turnovers() {
    let mut index = Index::new(16);
    let names: Vec<ObjectName> = (0..10).map(|token| chain(&[token])[0]).collect();
    for name in &names[..5] {
        index.insert(name, 4096);
    }
    // Three uses hold it for about three turnovers, not for ever.
    index.hit(&names[0].key);
    index.hit(&names[0].key);
    let mut turnovers = 0;
    while index.contains(&names[0].key) {
        let victim = index.victim(&root()).expect("not empty");
        index.evict(&victim.key);
        let next = chain(&[100 + turnovers])[0];
        index.insert(&next, 4096);
        turnovers += 1;
        assert!(turnovers < 40, "it stays for ever");
    }
    assert!(turnovers > 8, "{turnovers}");
}

#[test]
fn small_objects_and_deep_blocks_are_worth_more() {
    let mut index = Index::new(1024);
    let (small, large) = (chain(&[1])[0], chain(&[2])[0]);
    index.insert(&small, 100);
    index.insert(&large, 9000);
    let deep = chain(&[3, 4, 5]);
    for name in &deep {
        index.insert(name, 4096);
    }
    let order = order(index);
    assert_eq!(order[..2], [large.key, small.key]);
}

#[test]
fn what_is_kept_is_no_victim() {
    let mut index = Index::new(16);
    let names = chain(&[1, 2]);
    for name in &names {
        index.insert(name, 4096);
    }
    assert_eq!(index.victim(&names[1].key), None);
    assert_eq!(index.victim(&names[0].key), Some(names[1]));
}

#[test]
fn a_listing_makes_the_index_again_without_its_orphans() {
    let mut index = Index::new(16);
    let (kept, torn) = (chain(&[1, 2, 3]), chain(&[7, 8, 9]));
    let mut listing: Vec<Listed> = kept.iter().map(|&name| listed(name, 5000, 9)).collect();
    listing.extend(torn[1..].iter().map(|&name| listed(name, 5000, 9)));
    let wrong_depth = ObjectName {
        depth: 5,
        ..chain(&[1, 6])[1]
    };
    listing.push(listed(wrong_depth, 5000, 9));
    listing.reverse();
    let (renewed, orphans) = index.renewed(listing.clone());
    check(&renewed);
    assert_eq!(renewed.used_bytes(), 3 * 8192);
    assert_eq!(orphans.len(), 3);
    assert!(kept.iter().all(|name| renewed.contains(&name.key)));
    // What is known of uses outlives a renewal.
    index = renewed;
    index.hit(&kept[2].key);
    let (again, _) = index.renewed(listing);
    assert_eq!(again.entries[&kept[2].key].hits, 1);
}

#[test]
fn after_a_start_the_oldest_go_first() {
    let names: Vec<ObjectName> = (0..6).map(|token| chain(&[token])[0]).collect();
    let times = [50, 10, 40, 20, 60, 30];
    let listing = names
        .iter()
        .zip(times)
        .map(|(&name, time)| listed(name, 4096, time));
    let (mut index, orphans) = Index::new(16).renewed(listing.collect());
    assert!(orphans.is_empty());
    // Used now: as good as new.
    assert!(index.touch(&names[1].key));
    let expected = [3, 5, 2, 0].map(|i: usize| names[i].key);
    assert_eq!(order(index)[..4], expected);
}

#[test]
fn a_subtree_is_everything_that_continues_a_block_the_last_first() {
    let mut index = Index::new(16);
    let (first, second) = (chain(&[1, 2, 3]), chain(&[1, 2, 4]));
    for name in first.iter().chain(&second[2..]) {
        index.insert(name, 4096);
    }
    let other = chain(&[9])[0];
    index.insert(&other, 4096);
    let names = index.subtree(&first[1].key);
    assert_eq!(names.len(), 3);
    assert_eq!(names[2], first[1]);
    for name in names {
        index.remove(&name.key);
        check(&index);
    }
    assert!(index.contains(&first[0].key) && index.contains(&other.key));
    assert_eq!(index.len(), 2);
    assert!(index.subtree(&first[1].key).is_empty());
}

#[test]
fn any_history_keeps_the_books_right() {
    for seed in 0..50 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut pick = |below: u32| rng.next_u32() % below;
        let mut index = Index::new(16);
        for _ in 0..200 {
            let length = 1 + pick(4) as usize;
            let tokens: Vec<u32> = (0..length).map(|_| pick(3)).collect();
            let names = chain(&tokens);
            let last = names[length - 1];
            match pick(5) {
                0 | 1 => {
                    let bytes = u64::from(pick(20_000));
                    for name in &names {
                        if index.takes(name) {
                            index.insert(name, bytes);
                        }
                    }
                }
                2 => _ = index.touch(&last.key),
                3 => index.hit(&last.key),
                _ => {
                    if let Some(victim) = index.victim(&last.key) {
                        assert_ne!(victim.key, last.key);
                        index.evict(&victim.key);
                    }
                }
            }
            check(&index);
        }
    }
}

#[test]
fn a_new_block_outlives_older_ones_of_its_kind() {
    let mut index = Index::new(16);
    let names: Vec<ObjectName> = (0..40).map(|token| chain(&[token])[0]).collect();
    for name in &names[..10] {
        index.insert(name, 4096);
    }
    let mut gone = Vec::new();
    for name in &names[10..] {
        let victim = index.victim(&root()).expect("it is full");
        index.evict(&victim.key);
        gone.push(victim.key);
        index.insert(name, 4096);
    }
    for (gone, names) in gone.chunks(10).zip(names.chunks(10)) {
        assert!(names.iter().all(|name| gone.contains(&name.key)));
    }
}
