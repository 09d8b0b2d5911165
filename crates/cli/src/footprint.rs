//! The memory that this process takes, as the system counts it.

use std::fs;

/// The most memory that was in use at once, in bytes, the pages of mapped files included; `None` where the system does not
/// say (`VmHWM` of `/proc/self/status`, see proc(5)).
pub(crate) fn peak_bytes() -> Option<u64> {
    peak_of(&fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_of(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kib * 1024)
}

/// Lets the peak start anew from what is in use now; whether the system does that.
pub(crate) fn restart_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

#[cfg(test)]
mod tests {
    use super::peak_of;

    #[test]
    fn the_peak_is_read_from_the_status() {
        let status = "VmPeak:\t  999 kB\nVmHWM:\t   12345 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(peak_of(status), Some(12345 * 1024));
        assert_eq!(peak_of("VmPeak:\t 999 kB\n"), None);
    }
}
