//! The CPU backend against the conformance suite, at every level, precision and number of threads.

use super::*;
use crate::{
    Activation, AttentionSpec, BLOCK_TOKENS, Backend, Batch, ExpertWeights, ExpertsSpec, KvShape,
    Logits, conformance,
};
use andante_gguf::{Format, quant};

#[test]
fn conforms_at_every_level() {
    for isa in Isa::available() {
        for (kv_type, threads) in [(KvType::F16, 1), (KvType::F32, 2), (KvType::F16, 3)] {
            let config = config(isa, kv_type, threads);
            conformance::run(
                || CpuBackend::new(config).expect("threads"),
                stored(kv_type),
            );
        }
    }
}

#[test]
fn attention_conforms_with_every_type_of_keys_and_values() {
    for isa in Isa::available() {
        for (kv_type, threads) in [
            (KvType::BF16, 1),
            (KvType::Q8_0, 1),
            (KvType::BF16, 3),
            (KvType::Q8_0, 2),
        ] {
            let config = config(isa, kv_type, threads);
            let make = || CpuBackend::new(config).expect("threads");
            conformance::run_attention(make, stored(kv_type));
        }
    }
}

#[test]
fn deepseek4_conforms_at_every_level() {
    for isa in Isa::available() {
        for (kv_type, threads) in [(KvType::F32, 1), (KvType::F16, 3), (KvType::Q8_0, 2)] {
            let config = config(isa, kv_type, threads);
            conformance::run_deepseek4(|| CpuBackend::new(config).expect("threads"));
        }
    }
}

fn config(isa: Isa, kv_type: KvType, threads: usize) -> CpuConfig {
    CpuConfig {
        threads: Some(threads),
        kv_type,
        isa: Some(isa),
        ..CpuConfig::default()
    }
}

/// What each type keeps of a head's row, by the reference arithmetic.
fn stored(kv_type: KvType) -> conformance::Stored {
    match kv_type {
        KvType::F16 | KvType::F32 => |_| {},
        KvType::BF16 => |row| {
            for x in row {
                *x = half::bf16::from_f32(*x).to_f32();
            }
        },
        KvType::Q8_0 => |row| {
            for part in row.chunks_mut(32) {
                let mut block = [0.0; 32];
                block[..part.len()].copy_from_slice(part);
                let mut bytes = Vec::new();
                quant::quantize(Format::Q8_0, &block, &mut bytes);
                let tensor = Tensor::new("row", &[32], Format::Q8_0, &bytes);
                part.copy_from_slice(&tensor.dequantize()[..part.len()]);
            }
        },
    }
}

#[test]
fn conforms_in_reference_arithmetic() {
    let config = CpuConfig {
        threads: Some(2),
        weights: WeightForm::Reference,
        ..CpuConfig::default()
    };
    conformance::run(
        || CpuBackend::new(config).expect("threads"),
        stored(KvType::F32),
    );
}

/// Threads share one sequence's spans only when there are few rows; the merge must not show it.
#[test]
fn a_long_context_gives_the_same_bits_on_any_number_of_threads() {
    let spec = AttentionSpec {
        heads: 4,
        kv_heads: 1,
        head_dim: 64,
        scale: 0.125,
        window: None,
    };
    let tokens = 3000_usize;
    let value = |i: usize| ((i * 7919) % 509) as f32 / 254.0 - 1.0;
    let attend = |threads: usize, kv_type: KvType| {
        let config = config(Isa::detect(), kv_type, threads);
        let mut backend = CpuBackend::new(config).expect("threads");
        let shape = KvShape {
            layers: 1,
            kv_heads: 1,
            head_dim: 64,
            block_tokens: BLOCK_TOKENS,
        };
        let mut kv = backend
            .kv(&shape, tokens.div_ceil(BLOCK_TOKENS))
            .expect("a cache");
        let table: Vec<u32> = (0..tokens.div_ceil(BLOCK_TOKENS) as u32).collect();
        let [mut k, mut v] = std::array::from_fn(|_| backend.buffer(tokens, 64).expect("a buffer"));
        k.rows_mut(tokens)
            .iter_mut()
            .enumerate()
            .for_each(|(i, x)| *x = 3.0 * value(i));
        v.rows_mut(tokens)
            .iter_mut()
            .enumerate()
            .for_each(|(i, x)| *x = value(i + 17));
        let slots: Vec<u32> = (0..tokens as u32).collect();
        backend.kv_write(&mut kv, 0, &k, &v, &slots);
        let [mut q, mut out] = std::array::from_fn(|_| backend.buffer(3, 256).expect("a buffer"));
        q.rows_mut(3)
            .iter_mut()
            .enumerate()
            .for_each(|(i, x)| *x = value(i + 5));
        let mut batch = Batch::default();
        batch.push_sequence(
            &[0; 3],
            tokens as u32 - 3,
            &table,
            BLOCK_TOKENS as u32,
            Logits::None,
        );
        backend.attention(&mut out, &q, &kv, 0, &spec, None, &batch);
        out.rows(3).to_vec()
    };
    for kv_type in KvType::ALL {
        let alone = attend(1, kv_type);
        assert!(alone.iter().any(|&x| x != 0.0));
        for threads in [2, 3, 5] {
            let found = attend(threads, kv_type);
            assert_eq!(found, alone, "{threads} threads, {kv_type:?}");
        }
    }
}

#[test]
fn a_cache_is_as_large_as_said_and_refuses_other_blocks() {
    let shape = KvShape {
        layers: 3,
        kv_heads: 2,
        head_dim: 24,
        block_tokens: BLOCK_TOKENS,
    };
    // Values are padded from 24 to 32.
    let values = 3 * 2 * 32 * (24 + 32);
    for (kv_type, bytes) in [
        (KvType::F16, 2 * values),
        (KvType::BF16, 2 * values),
        // A scale for the key and one for the value of each head and token.
        (KvType::Q8_0, values + 3 * 2 * 32 * 2 * 2),
        (KvType::F32, 4 * values),
    ] {
        let mut backend = CpuBackend::new(CpuConfig {
            threads: Some(1),
            kv_type,
            ..CpuConfig::default()
        })
        .unwrap();
        assert_eq!(backend.kv_block_bytes(&shape), bytes);
        let other = KvShape {
            block_tokens: 16,
            ..shape
        };
        assert!(matches!(
            backend.kv(&other, 1),
            Err(ComputeError::KvShape {
                block_tokens: 16,
                ..
            })
        ));
        assert!(matches!(
            backend.kv(&shape, usize::MAX / 1000),
            Err(ComputeError::OutOfMemory { .. })
        ));
    }
}

#[test]
fn experts_give_the_same_bits_on_any_number_of_threads() {
    let (hidden, width, experts, rows) = (64_usize, 32_usize, 6_usize, 50);
    let spec = ExpertsSpec {
        experts,
        chosen: 3,
        activation: Activation::Silu,
    };
    let value = |i: usize| ((i * 7919) % 509) as f32 / 254.0 - 1.0;
    let run = |threads: usize, format: Format| {
        let config = CpuConfig {
            threads: Some(threads),
            ..CpuConfig::default()
        };
        let mut backend = CpuBackend::new(config).expect("threads");
        let [gate, up, down] =
            [(hidden, width), (hidden, width), (width, hidden)].map(|(cols, rows)| {
                let values: Vec<f32> = (0..cols * rows * experts)
                    .map(|i| value(i + cols))
                    .collect();
                let mut data = Vec::new();
                quant::quantize(format, &values, &mut data);
                let shape = [cols as u64, rows as u64, experts as u64];
                let tensor = Tensor::new("experts", &shape, format, &data);
                backend.weight(&tensor).expect("a weight")
            });
        let [mut x, mut out] = [(); 2].map(|()| backend.buffer(rows, hidden).expect("a buffer"));
        let mut router = backend.buffer(rows, experts).expect("a buffer");
        for (buffer, seed) in [(&mut x, 5), (&mut router, 11)] {
            let values = buffer.rows_mut(rows).iter_mut();
            values.enumerate().for_each(|(i, x)| *x = value(i + seed));
        }
        let weights = ExpertWeights {
            gate: &gate,
            up: &up,
            down: &down,
            gate_bias: None,
            up_bias: None,
            down_bias: None,
        };
        backend.experts(&mut out, &x, &router, &weights, &spec, rows);
        out.rows(rows).to_vec()
    };
    for format in [Format::F32, Format::Q8_0] {
        let alone = run(1, format);
        assert!(alone.iter().any(|&x| x != 0.0));
        for threads in [2, 3, 5] {
            assert_eq!(run(threads, format), alone, "{threads} threads");
        }
    }
}

#[test]
fn experts_of_broken_strips_are_refused() {
    let mut backend = CpuBackend::new(CpuConfig::default()).expect("threads");
    let tensor = Tensor::new("ffn_up_exps", &[1, 24, 2], Format::F32, &[0; 4 * 48]);
    let refused = backend.weight(&tensor);
    assert!(matches!(
        refused,
        Err(ComputeError::ExpertRows { rows: 24, .. })
    ));
}
