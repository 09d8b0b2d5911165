//! A real folder: modes, what a killed process leaves behind, and two stores that take turns.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::store::key::Key;
use crate::store::objects::Held;

fn name(token: u32) -> ObjectName {
    let parent = Key::root(&[0; 32]);
    ObjectName {
        key: parent.child(&[token]),
        parent,
        depth: 0,
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o777
}

#[test]
fn objects_come_back_as_they_went_and_are_their_owners_alone() {
    let parent = tempfile::tempdir().expect("a folder");
    let path = parent.path().join("a/kv");
    let folder = Folder::create(&path).expect("made");
    let held = Held::take(&folder).expect("locked");
    assert!(held.changed, "nothing is known of it yet");
    folder.put(&name(1), b"one").expect("written");
    folder.put(&name(2), b"three").expect("written");
    fs::write(path.join("notes.txt"), "not ours").expect("written");
    let mut listed = folder.list().expect("listed").objects;
    listed.sort_by_key(|object| object.bytes);
    assert_eq!(listed.len(), 2);
    assert_eq!((listed[0].name, listed[0].bytes), (name(1), 3));
    assert_eq!((listed[1].name, listed[1].bytes), (name(2), 5));
    assert!(listed[0].modified_s > 1_700_000_000);
    let mut read = b"left over".to_vec();
    folder.get(&name(2), &mut read).expect("read");
    assert_eq!(read, b"three");
    folder.delete(&name(1)).expect("deleted");
    folder
        .delete(&name(1))
        .expect("that it is gone is no error");
    let gone = folder.get(&name(1), &mut read).expect_err("gone");
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join(name(2).to_string())), 0o600);
    assert_eq!(mode(&path.join(LOCK)), 0o600);
    assert!(path.join("notes.txt").exists());
}

#[test]
fn a_read_renews_the_time() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = Folder::create(parent.path()).expect("there");
    let _held = Held::take(&folder).expect("locked");
    folder.put(&name(1), b"one").expect("written");
    let long_ago = UNIX_EPOCH + std::time::Duration::from_secs(1000);
    let file = File::open(folder.file(&name(1))).expect("there");
    file.set_modified(long_ago).expect("it is ours");
    assert_eq!(folder.list().expect("listed").objects[0].modified_s, 1000);
    folder.get(&name(1), &mut Vec::new()).expect("read");
    assert!(folder.list().expect("listed").objects[0].modified_s > 1000);
}

#[test]
fn a_store_learns_that_another_one_was_there() {
    let parent = tempfile::tempdir().expect("a folder");
    let [one, other] = [(); 2].map(|()| Folder::create(parent.path()).expect("there"));
    let turn = |folder: &Folder| Held::take(folder).expect("locked").changed;
    assert!(turn(&one));
    assert!(!turn(&one), "only itself");
    assert!(turn(&other));
    assert!(turn(&one));
    assert!(!turn(&one));
    // It was killed in the middle: its lock is gone, the change shows, the rest is cleared away.
    let held = Held::take(&other).expect("locked");
    fs::write(parent.path().join(INCOMING), "half of it").expect("written");
    drop(held);
    assert!(turn(&one));
    assert!(!parent.path().join(INCOMING).exists());
}

#[test]
fn only_one_holds_the_lock() {
    let parent = tempfile::tempdir().expect("a folder");
    let [one, other] = [(); 2].map(|()| Folder::create(parent.path()).expect("there"));
    let held = Held::take(&one).expect("locked");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let _held = Held::take(&other).expect("locked");
            other.list().expect("listed").objects.len()
        });
        one.put(&name(1), b"one").expect("written");
        one.put(&name(2), b"two").expect("written");
        drop(held);
        assert_eq!(second.join().expect("no panic"), 2);
    });
}

#[test]
fn a_failed_write_leaves_nothing_behind() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = Folder::create(parent.path()).expect("there");
    let _held = Held::take(&folder).expect("locked");
    // A folder of that name is in the way of the rename.
    fs::create_dir(folder.file(&name(1))).expect("made");
    fs::write(folder.file(&name(1)).join("x"), "").expect("written");
    assert!(folder.put(&name(1), b"one").is_err());
    assert!(!parent.path().join(INCOMING).exists());
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let parent = tempfile::tempdir().expect("a folder");
    assert!(Folder::open(&parent.path().join("none")).is_err());
    let folder = Folder::create(&parent.path().join("kv")).expect("made");
    fs::remove_dir(parent.path().join("kv")).expect("empty");
    let error = folder.lock().expect_err("gone");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_log_has_its_whole_records_and_goes_on_behind_them() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = Folder::create(parent.path()).expect("there");
    let log = Key::root(&[1; 32]);
    let read = |folder: &Folder| folder.read_log(&log).expect("readable");
    assert!(read(&folder).is_empty());
    {
        let _held = Held::take(&folder).expect("locked");
        assert_eq!(folder.append(&log, b"one").expect("written"), 3 + 12);
        assert_eq!(folder.append(&log, b"").expect("written"), 15 + 12);
    }
    assert_eq!(read(&folder), [b"one".to_vec(), Vec::new()]);
    let listing = folder.list().expect("listed");
    assert_eq!((listing.objects.len(), listing.logs), (0, vec![(log, 27)]));
    let path = folder.log(&log);
    assert_eq!(mode(&path), 0o600);
    // A killed process leaves any part of a record; the next one writes over it.
    let whole = framed(b"killed");
    for cut in 0..whole.len() {
        let mut bytes = fs::read(&path).expect("there");
        bytes.truncate(27);
        bytes.extend(&whole[..cut]);
        fs::write(&path, bytes).expect("written");
        let other = Folder::open(parent.path()).expect("there");
        assert_eq!(read(&other).len(), 2, "{cut} bytes");
        let _held = Held::take(&other).expect("locked");
        assert_eq!(other.append(&log, b"two").expect("written"), 27 + 15);
        assert_eq!(read(&other)[2], b"two");
    }
    let _held = Held::take(&folder).expect("locked");
    assert_eq!(
        folder.append(&log, b"three").expect("written"),
        42 + 17,
        "it has seen the change"
    );
    assert_eq!(folder.replace_log(&log, b"all").expect("written"), 15);
    assert_eq!(folder.append(&log, b"more").expect("written"), 15 + 16);
    assert_eq!(read(&folder), [b"all".to_vec(), b"more".to_vec()]);
    folder.delete_log(&log).expect("deleted");
    assert!(read(&folder).is_empty());
    assert_eq!(folder.append(&log, b"new").expect("written"), 15);
}
