//! A thread that looks whether the engine gets on, tells whoever started the program, and ends a process that is stuck.

use std::thread;
use std::time::Duration;

use crate::notify::Notify;

/// The longest pause between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Watches until the process ends. `step_age` is how long the step in flight has taken; one that takes longer than `limit` will never
/// end, and `stuck` ends the process instead.
pub(crate) fn watch(
    step_age: impl Fn() -> Option<Duration> + Send + 'static,
    limit: Duration,
    notify: Notify,
    stuck: impl FnOnce(Duration) + Send + 'static,
) -> std::io::Result<thread::JoinHandle<()>> {
    let pause = notify.watchdog().map_or(LOOK, |every| every / 2);
    let pause = pause.min(LOOK).min(limit / 4);
    thread::Builder::new()
        .name("watchdog".into())
        .spawn(move || {
            loop {
                if let Some(age) = step_age().filter(|&age| age > limit) {
                    return stuck(age);
                }
                notify.alive();
                thread::sleep(pause);
            }
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_step_that_never_ends_is_told_of_once() {
        // Ages in milliseconds, as they are looked at; none is 0.
        let ages = [0, 30, 40, 0, 39, 41, 0];
        let looks = AtomicU64::new(0);
        let step_age = move || {
            let look = looks.fetch_add(1, Ordering::Relaxed) as usize;
            let age = ages.get(look).copied().unwrap_or_default();
            (age > 0).then_some(Duration::from_millis(age))
        };
        let (sender, receiver) = mpsc::channel();
        let sender = Mutex::new(sender);
        let stuck = move |age| sender.lock().unwrap().send(age).unwrap();
        let limit = Duration::from_millis(40);
        let thread = watch(step_age, limit, Notify::default(), stuck).unwrap();
        thread.join().unwrap();
        let told: Vec<Duration> = receiver.iter().collect();
        assert_eq!(told, [Duration::from_millis(41)]);
    }
}
