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
    // Six of a fifth take a second region.
    let parts: Vec<Pages<u8>> = (0..6)
        .map(|_| arena.pages(REGION_BYTES / 5).unwrap())
        .collect();
    let starts = parts.iter().map(|part| part.as_ptr() as usize);
    let near = starts.filter(|start| start.abs_diff(parts[0].as_ptr() as usize) < REGION_BYTES);
    assert!(near.count() >= 5);
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
