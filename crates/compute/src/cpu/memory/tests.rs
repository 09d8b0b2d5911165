//! Parts of one region do not meet, and outlive the arena.

use super::*;

#[test]
fn parts_of_a_region_are_zeros_apart_from_each_other() {
    let mut arena = Arena::default();
    let mut parts: Vec<Pages<u32>> = (1..100).map(|n| arena.pages(n).unwrap()).collect();
    for (n, part) in (1..).zip(&mut parts) {
        assert_eq!(part.as_ptr() as usize % ALIGN, 0);
        assert_eq!(**part, vec![0; n as usize]);
        part.fill(n);
    }
    // One after the other in the same region.
    let (first, last) = (parts[0].as_ptr() as usize, parts[98].as_ptr() as usize);
    assert!(last - first < 99 * 99 * 4 + 99 * ALIGN);
    drop(arena);
    parts.truncate(50);
    for (n, part) in (1..).zip(&parts) {
        assert!(part.len() == n as usize && part.iter().all(|&value| value == n));
    }
}

#[test]
fn what_no_region_holds_has_one_of_its_own() {
    let mut arena = Arena::default();
    let large: Pages<u8> = arena.pages(REGION_BYTES + 1).unwrap();
    assert_eq!(large.len(), REGION_BYTES + 1);
    // Eight of an eighth fill a region, one after the other; the ninth is in another, wherever the system puts that.
    let eighth = REGION_BYTES / 8;
    let parts: Vec<Pages<u8>> = (0..9).map(|_| arena.pages(eighth).unwrap()).collect();
    let starts: Vec<usize> = parts.iter().map(|part| part.as_ptr() as usize).collect();
    for (n, start) in (0..8).zip(&starts) {
        assert_eq!(*start, starts[0] + n * eighth);
    }
    assert!(!(starts[0]..starts[0] + REGION_BYTES).contains(&starts[8]));
    assert!(arena.pages::<u8>(0).unwrap().is_empty());
}

#[test]
fn more_than_there_is_is_refused() {
    let error = Arena::default().pages::<u64>(usize::MAX).err();
    assert!(matches!(
        error,
        Some(ComputeError::OutOfMemory { what: WEIGHTS, .. })
    ));
}
