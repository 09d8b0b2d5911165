//! The processors that this process may use: how many are cores of their own, and binding a thread to one.

/// The cores that this process may use; 1 at least. Processors that share a core (hyper-threads) share its vector units too,
/// so more threads than cores gain nothing and wait for each other.
pub(super) fn cores() -> usize {
    let offered = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = distinct(&allowed()).len();
    if cores == 0 {
        offered
    } else {
        // A container may have less time than processors.
        offered.min(cores)
    }
}

/// The processors for `threads` threads to be bound to: one of every core, then the others of the same cores, then again.
/// Empty where the system does not say.
pub(super) fn places(threads: usize) -> Vec<usize> {
    let allowed = allowed();
    let mut order = distinct(&allowed);
    let rest: Vec<_> = allowed
        .iter()
        .map(|processor| processor.number)
        .filter(|number| !order.contains(number))
        .collect();
    order.extend(rest);
    order.iter().copied().cycle().take(threads).collect()
}

/// A processor and the core that it is a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Processor {
    number: usize,
    /// Package and core; its own number where the system does not say.
    core: (usize, usize),
}

/// The first processor of every core.
fn distinct(processors: &[Processor]) -> Vec<usize> {
    let mut seen = std::collections::BTreeSet::new();
    let first = processors.iter().filter(|p| seen.insert(p.core));
    first.map(|p| p.number).collect()
}

#[cfg(target_os = "linux")]
fn allowed() -> Vec<Processor> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let topology = |number: usize, file: &str| -> Option<usize> {
        let path = format!("/sys/devices/system/cpu/cpu{number}/topology/{file}");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|&number| set.is_set(number))
        .map(|number| Processor {
            number,
            core: topology(number, "physical_package_id")
                .zip(topology(number, "core_id"))
                .unwrap_or((usize::MAX, number)),
        })
        .collect()
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<Processor> {
    Vec::new()
}

/// Binds the calling thread to a processor. A wish: where it is refused, the system goes on choosing.
pub(super) fn bind(processor: usize) {
    #[cfg(target_os = "linux")]
    {
        let mut set = rustix::thread::CpuSet::new();
        set.set(processor);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = processor;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_processor_of_every_core() {
        // Two packages of two cores; hyper-threads are numbered after all cores, as Linux does.
        let all: Vec<_> = (0..8)
            .map(|number| Processor {
                number,
                core: (number / 2 % 2, number % 2),
            })
            .collect();
        assert_eq!(distinct(&all), [0, 1, 2, 3]);
        assert_eq!(distinct(&all[5..]), [5, 6, 7]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_bound_thread_stays_where_it_is() {
        let places = places(3);
        assert_eq!(places.len(), 3);
        assert!(
            (1..=std::thread::available_parallelism().map_or(1, usize::from)).contains(&cores())
        );
        let last = places[cores() - 1];
        let bound = std::thread::spawn(move || {
            bind(last);
            allowed()
        });
        let bound = bound.join().expect("no panic");
        assert_eq!(
            bound.iter().map(|p| p.number).collect::<Vec<_>>(),
            [last],
            "the thread's own set"
        );
    }
}
