//! A recorded run can be repeated, and a disk that fails costs nothing but the recording.

use std::io::{self, Write};

use andante_sched::replay;

use super::*;

/// A disk with room for so many bytes.
#[derive(Clone)]
struct Disk(Arc<Mutex<Vec<u8>>>, usize);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.0.lock().expect("no panic");
        if written.len() + bytes.len() > self.1 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the disk holds after a run, and how many steps that had.
fn run(room: usize) -> (Vec<u8>, u64) {
    let disk = Disk(Arc::default(), room);
    let mut rig = Rig::ticking(&small());
    rig.engine = rig.engine.record_to(disk.clone()).expect("a thread");
    for round in 0..4 {
        let streams: Vec<_> = (0..4)
            .map(|i| rig.submit(&format!("{round}{i}{}", long(30 * i)), greedy(20)))
            .collect();
        rig.settle();
        for (i, stream) in streams.into_iter().enumerate() {
            let prompt = format!("{round}{i}{}", long(30 * i));
            assert_eq!(Answer::of(stream).text, letters(&prompt, 20));
        }
    }
    let steps = rig.engine.scheduler.stats().steps;
    drop(rig);
    let written = disk.0.lock().expect("no panic").clone();
    (written, steps)
}

#[test]
fn a_recorded_run_can_be_repeated() {
    let (log, steps) = run(usize::MAX);
    let mut last = 0;
    let replayed = replay(&log, |_, scheduler| last = scheduler.stats().steps);
    assert_eq!(
        replayed.expect("every plan is the recorded one").cut_bytes,
        0
    );
    assert_eq!(last, steps);
}

#[test]
fn a_full_disk_ends_the_recording_and_nothing_else() {
    let (log, steps) = run(3000);
    assert!(log.len() <= 3000);
    let mut last = 0;
    if !log.is_empty() {
        replay(&log, |_, scheduler| last = scheduler.stats().steps).expect("as far as it goes");
    }
    assert!(last < steps);
}

#[test]
fn a_recording_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("andante-recording-{}", std::process::id()));
    std::fs::write(&path, "something older").expect("a folder for temporary files");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("our file");
    let config = EngineConfig {
        record: Some(path.clone()),
        ..small()
    };
    let mut rig = Rig::new(FakeModel::new(VOCAB), &config);
    rig.answer("A", greedy(3));
    drop(rig);
    let mode = std::fs::metadata(&path)
        .expect("it is there")
        .permissions()
        .mode();
    let log = std::fs::read(&path).expect("it is ours");
    std::fs::remove_file(&path).expect("it is ours");
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(replay(&log, |_, _| {}).expect("a log").cut_bytes, 0);
    let config = EngineConfig {
        record: Some("/nowhere/at/all".into()),
        ..small()
    };
    let refused = spawn(FakeModel::new(VOCAB).boxed(), text_stack(), &config);
    assert!(matches!(refused, Err(EngineError::Record { .. })));
}
