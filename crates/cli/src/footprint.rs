//! The memory that this process takes, as the system counts it.

use std::fs;
use std::path::Path;

/// The most memory that was in use at once, in bytes, the pages of mapped files included; `None` where the system does not
/// say (`VmHWM` of `/proc/self/status`, see proc(5)).
pub(crate) fn peak_bytes() -> Option<u64> {
    kib_of(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// A line of a file of proc(5), in bytes.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kib * 1024)
}

/// Memory that could still be taken, in bytes; `None` where the system does not say. The pages of files that it could give
/// up count as free (`MemAvailable` of proc(5)); the limit of a control group counts where there is one (`memory.max`).
pub(crate) fn available_bytes() -> Option<u64> {
    let free = kib_of(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    Some(group_free_bytes().map_or(free, |group| group.min(free)))
}

/// What the limit of this process's control group leaves.
fn group_free_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let read = |file| fs::read_to_string(Path::new("/sys/fs/cgroup").join(group).join(file)).ok();
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.stat")?
        .lines()
        .find_map(|line| line.strip_prefix("anon "))?
        .parse()
        .ok()?;
    Some(limit.saturating_sub(used))
}

/// Lets the peak start anew from what is in use now; whether the system does that.
pub(crate) fn restart_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

#[cfg(test)]
mod tests {
    use super::{available_bytes, kib_of, peak_bytes};

    #[test]
    fn lines_are_read_from_the_status() {
        let status = "VmPeak:\t  999 kB\nVmHWM:\t   12345 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(kib_of(status, "VmHWM:"), Some(12345 * 1024));
        assert_eq!(kib_of("VmPeak:\t 999 kB\n", "VmHWM:"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_says_what_is_free_and_used() {
        let (free, used) = (available_bytes(), peak_bytes());
        assert!(free.is_some_and(|free| free > 0) && used.is_some_and(|used| used > 0));
    }
}
