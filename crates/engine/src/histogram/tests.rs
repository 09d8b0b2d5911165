//! Where values are counted.

use super::Histogram;

#[test]
fn a_bound_belongs_to_its_own_bucket_and_nothing_is_lost() {
    let mut histogram = Histogram::new(&[10, 20]);
    for value in [0, 10, 11, 20, 21, u64::MAX] {
        histogram.add(value);
    }
    assert_eq!(histogram.bounds(), [10, 20]);
    assert_eq!(histogram.counts(), [2, 2, 2]);
    assert_eq!(histogram.sum(), u64::MAX, "it does not wrap");
}

#[test]
fn bounds_rise() {
    for bounds in [
        &Histogram::DURATIONS_US[..],
        &Histogram::WAITS_US,
        &Histogram::RATIOS_PERMILLE,
        &Histogram::TOKENS,
    ] {
        assert!(bounds.is_sorted_by(|a, b| a < b));
        assert_eq!(Histogram::new(bounds).counts().len(), bounds.len() + 1);
    }
}
