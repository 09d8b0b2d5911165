//! Figures that several commands draw from what they measured.

/// Upper ends of the classes of prompt lengths, in tokens; the last has none.
pub(crate) const LENGTHS: [u32; 4] = [1024, 4096, 16_384, u32::MAX];

/// The smallest of `sorted` values that at least so many percent of them do not exceed (nearest rank).
pub(crate) fn percentile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_are_of_nearest_rank() {
        let values: Vec<u64> = (1..=200).collect();
        let at = |percent| percentile(&values, percent);
        assert_eq!(
            (at(0), at(50), at(99), at(100)),
            (Some(1), Some(100), Some(198), Some(200))
        );
        assert_eq!(percentile(&[7], 99), Some(7));
        assert_eq!(percentile::<u64>(&[], 50), None);
    }
}
