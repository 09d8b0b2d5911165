//! Any bytes as a scheduling log. Run: `cargo +nightly fuzz run sched_log`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(replayed) = andante_sched::replay(bytes, |_, _| {}) {
        assert!(replayed.steps <= replayed.plans && replayed.plans <= replayed.entries);
    }
});
