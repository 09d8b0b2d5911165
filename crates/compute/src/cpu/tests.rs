//! The CPU backend against the conformance suite, at every level, precision and number of threads.

use super::*;
use crate::conformance;

#[test]
fn conforms_at_every_level() {
    for isa in Isa::available() {
        for (kv_type, threads) in [
            (KvType::F16, 1),
            (KvType::F16, 2),
            (KvType::F32, 2),
            (KvType::F16, 3),
        ] {
            let config = CpuConfig {
                threads: Some(threads),
                kv_type,
                reference: false,
                isa: Some(isa),
            };
            conformance::run(|| CpuBackend::new(config).expect("threads"));
        }
    }
}

#[test]
fn conforms_in_reference_arithmetic() {
    let config = CpuConfig {
        threads: Some(2),
        reference: true,
        ..CpuConfig::default()
    };
    conformance::run(|| CpuBackend::new(config).expect("threads"));
}
