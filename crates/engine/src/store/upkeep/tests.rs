//! Checking and pruning a folder.

use std::fs;

use super::*;
use crate::store::block::Block;
use crate::store::folder::Folder;

/// A folder with two chains of three blocks.
fn folder() -> (tempfile::TempDir, Arc<Folder>, Vec<ObjectName>) {
    let path = tempfile::tempdir().expect("a folder");
    let folder = Folder::create(path.path()).expect("there");
    let (mut names, mut object) = (Vec::new(), Vec::new());
    {
        let _held = Held::take(&folder).expect("locked");
        for token in [1, 2] {
            let mut parent = Key::root(&[5; 32]);
            for depth in 0..3 {
                let key = parent.child(&[token]);
                let block = Block {
                    identity: &[5; 32],
                    key,
                    parent,
                    depth,
                    tokens: &[token],
                };
                block::encode(&block, &[9; 100], &mut object);
                let name = ObjectName { key, parent, depth };
                folder.put(&name, &object).expect("written");
                names.push(name);
                parent = key;
            }
        }
    }
    (path, Arc::new(folder), names)
}

#[test]
fn damaged_and_misnamed_objects_are_told() {
    let (path, folder, names) = folder();
    let file = |name: &ObjectName| path.path().join(name.to_string());
    fs::write(file(&names[1]), b"short").expect("written");
    fs::copy(file(&names[0]), file(&names[5])).expect("copied");
    let mut faults = Vec::new();
    let mut whole = 0;
    let see = |name: &ObjectName, found: Result<ObjectInfo, Reject>| match found {
        Ok(info) => {
            assert_eq!((info.key, info.kv_bytes), (name.key, 100));
            whole += 1;
        }
        Err(reject) => faults.push((*name, reject)),
    };
    verify(&*folder, None, see).expect("readable");
    assert_eq!(whole, 4);
    assert_eq!(faults.len(), 2);
    assert!(faults.contains(&(names[1], Reject::Damaged)));
    assert!(faults.contains(&(names[5], Reject::Foreign)));
    let useless: Vec<Key> = faults.iter().map(|(name, _)| name.key).collect();
    let left = prune(folder, &useless, u64::MAX).expect("writable");
    assert_eq!(left.blocks, 1 + 2, "with what continued them");
    assert!(file(&names[0]).exists() && !file(&names[2]).exists());
}

#[test]
fn pruning_brings_a_folder_down_to_a_size() {
    let (path, folder, names) = folder();
    fs::write(path.path().join("notes.txt"), "not ours").expect("written");
    fs::remove_file(path.path().join(names[4].to_string())).expect("it was there");
    let objects = Arc::clone(&folder);
    let left = prune(objects, &[], 2 * 4096).expect("writable");
    assert_eq!((left.blocks, left.used_bytes), (2, 2 * 4096));
    let listed = folder.list().expect("readable");
    assert!(
        listed.objects.iter().all(|object| object.name != names[5]),
        "an orphan"
    );
    assert_eq!(listed.objects.len(), 2);
    prune(folder, &[], 0).expect("writable");
    assert_eq!(
        fs::read_dir(path.path()).expect("there").count(),
        2,
        "lock and notes"
    );
}

#[test]
fn encrypted_objects_are_checked_with_their_key_and_left_alone_without() {
    let (path, folder, names) = folder();
    let (secret, other) = (Secret::new(&[1; 32]), Secret::new(&[2; 32]));
    let file = |name: &ObjectName| path.path().join(name.to_string());
    // One that is named without the key, and one that is as it should be.
    let plain = fs::read(file(&names[0])).expect("there");
    fs::write(file(&names[0]), secret.seal(&plain)).expect("written");
    let parent = Key::root(&[5; 32]);
    let block = Block {
        identity: &[5; 32],
        key: key::child(Some(&secret.names()), &parent, &[7]),
        parent,
        depth: 0,
        tokens: &[7],
    };
    let mut object = Vec::new();
    block::encode(&block, &[9; 100], &mut object);
    let name = ObjectName {
        key: block.key,
        parent,
        depth: 0,
    };
    fs::write(file(&name), secret.seal(&object)).expect("written");
    let found = |secret: Option<&Secret>| {
        let mut found = Vec::new();
        let see = |name: &ObjectName, told: Result<ObjectInfo, Reject>| {
            found.extend(told.err().map(|reject| (*name, reject)));
        };
        verify(&*folder, secret, see).expect("readable");
        found.sort_by_key(|(name, _)| name.key != block.key);
        found
    };
    assert_eq!(found(Some(&secret)), [(names[0], Reject::Foreign)]);
    let sealed = [(name, Reject::Sealed), (names[0], Reject::Sealed)];
    assert_eq!(found(None), sealed);
    assert_eq!(found(Some(&other)), sealed);
}
