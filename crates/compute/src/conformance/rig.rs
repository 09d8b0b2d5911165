//! A backend under test, with ways to put numbers in and get them out.

use super::Stored;
use crate::Backend;
use andante_gguf::{Format, Tensor, quant};

/// A backend and a source of random numbers.
pub(super) struct Rig<B: Backend> {
    pub(super) backend: B,
    pub(super) random: Random,
    pub(super) stored: Stored,
}

impl<B: Backend> Rig<B> {
    pub(super) fn new(backend: B, stored: Stored) -> Self {
        Self {
            backend,
            stored,
            random: Random(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// A buffer that holds these rows.
    pub(super) fn upload(&mut self, values: &[f32], width: usize) -> B::Buffer {
        let rows = values.len() / width;
        let table = self.matrix(values, width);
        let mut buffer = self.buffer(rows, width);
        let tokens: Vec<u32> = (0..rows as u32).collect();
        self.backend.embed(&mut buffer, &table, &tokens, 1.0);
        buffer
    }

    pub(super) fn buffer(&mut self, rows: usize, width: usize) -> B::Buffer {
        self.backend.buffer(rows, width).expect("a small buffer")
    }

    pub(super) fn download(&mut self, buffer: &B::Buffer, rows: usize) -> Vec<f32> {
        self.backend
            .read(buffer, rows)
            .expect("a working device")
            .to_vec()
    }

    /// A dense matrix with rows of `cols` values.
    pub(super) fn matrix(&mut self, values: &[f32], cols: usize) -> B::Weight {
        let mut data = Vec::new();
        quant::quantize(Format::F32, values, &mut data);
        self.weight(
            Format::F32,
            &data,
            &[cols as u64, (values.len() / cols) as u64],
        )
    }

    /// A norm or bias.
    pub(super) fn vector(&mut self, values: &[f32]) -> B::Weight {
        let mut data = Vec::new();
        quant::quantize(Format::F32, values, &mut data);
        self.weight(Format::F32, &data, &[values.len() as u64])
    }

    pub(super) fn weight(&mut self, format: Format, data: &[u8], shape: &[u64]) -> B::Weight {
        self.backend
            .weight(&Tensor::new("conformance", shape, format, data))
            .expect("a usable weight")
    }
}

/// SplitMix64: small, seeded, the same on every machine.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `0..limit`.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Values in `-1..1`, multiples of 1/512: exact in half precision.
    pub(super) fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count)
            .map(|_| (self.below(1023) as f32 - 511.0) / 512.0)
            .collect()
    }

    /// A random order of `0..count`.
    pub(super) fn shuffled(&mut self, count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count as u32).collect();
        for i in (1..count).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

/// Asserts that the largest difference is at most `tolerance`, and that every value is a number.
pub(super) fn assert_close(what: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}: number of values");
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let difference = (f64::from(found) - expected).abs();
        assert!(
            difference <= tolerance,
            "{what}: value {i} is {found}, not {expected}"
        );
    }
}

/// Asserts equality to the bit.
pub(super) fn assert_same(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}: number of values");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found.to_bits() == expected.to_bits(),
            "{what}: value {i} is {found:e}, alone {expected:e}"
        );
    }
}
