//! What an element becomes depends neither on its place in a vector nor on its neighbours. That the values are right is
//! checked for every level by the conformance suite.

use super::super::lanes::dispatch;
use super::*;
use crate::Isa;

#[test]
fn any_place_in_a_vector_gives_the_same_bits() {
    let gate: Vec<f32> = (0..61).map(|i| (i as f32 - 30.0) * 0.37).collect();
    let up: Vec<f32> = (0..61).map(|i| (i as f32 * 1.7).sin()).collect();
    for isa in Isa::available() {
        for act in [
            Activation::Silu,
            Activation::GeluTanh,
            Activation::ClampedSwiglu,
            Activation::SiluBelow(0.4),
        ] {
            let mut together = gate.clone();
            dispatch(
                isa,
                ActMul {
                    gate: &mut together,
                    up: &up,
                    act,
                },
            );
            for i in 0..gate.len() {
                let mut alone = [gate[i]];
                dispatch(
                    isa,
                    ActMul {
                        gate: &mut alone,
                        up: &up[i..=i],
                        act,
                    },
                );
                assert_eq!(
                    alone[0].to_bits(),
                    together[i].to_bits(),
                    "{isa} {act:?} {i}"
                );
            }
        }
    }
}
