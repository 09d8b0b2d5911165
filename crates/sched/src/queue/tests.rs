//! Who is admitted next, and who never loses its place.

use super::*;
use crate::config::Config;
use crate::step::{Admission, Priority};

const ONE: Flow = (0, Priority::Normal);

fn queue(lens: &[u32]) -> (Queue, Tenants) {
    let mut queue = Queue::default();
    let mut tenants = Tenants::new(&Config::new(99, 99, 16));
    for (&len, arrival) in lens.iter().zip(0..) {
        let prompt = vec![0; len as usize];
        let request = Admission {
            cache: false,
            ..Admission::new(arrival, &prompt, 1)
        };
        queue.push(Sequence::new(&request, arrival, 16), len);
        tenants.arrive(ONE);
    }
    (queue, tenants)
}

#[test]
fn shortest_first_and_every_fourth_the_oldest() {
    let (mut queue, mut tenants) = queue(&[900, 50, 800, 40, 30, 40, 700, 20]);
    let order: Vec<SeqId> = std::iter::from_fn(|| queue.next(&mut tenants, |_| true))
        .map(|sequence| sequence.id)
        .collect();
    assert_eq!(order, [7, 4, 3, 0, 5, 1, 6, 2]);
}

#[test]
fn a_big_one_is_passed_until_its_turn_and_then_waited_for() {
    let (mut queue, mut tenants) = queue(&[900, 50, 40, 30, 20]);
    let small = |sequence: &Sequence| sequence.prompt < 500;
    let order: Vec<SeqId> = std::iter::from_fn(|| queue.next(&mut tenants, small))
        .map(|sequence| sequence.id)
        .collect();
    assert_eq!(order, [4, 3, 2], "the fourth turn is the oldest's");
    assert_eq!(queue.next(&mut tenants, |_| true).unwrap().id, 0);
    assert_eq!(queue.next(&mut tenants, small).unwrap().id, 1);
}

#[test]
fn a_removed_request_leaves_the_others_in_place() {
    let (mut queue, _) = queue(&[30, 20, 10]);
    assert!(queue.remove(1).is_some() && queue.remove(1).is_none());
    assert_eq!(
        queue.iter().map(|sequence| sequence.id).collect::<Vec<_>>(),
        [0, 2]
    );
    assert_eq!(queue.len(), 2);
}
