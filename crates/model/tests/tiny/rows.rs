//! Rows are independent: the logits of a row are the same bits whatever shares the batch, however the prompt was cut, wherever
//! its blocks lie and however many threads compute.

use crate::fixture::{Tiny, model, quantised, reference, run};
use andante_compute::{Batch, CpuConfig, KvType, Logits, WeightForm};
use andante_gguf::Format;
use andante_model::Model;

const FORMATS: [Format; 8] = [
    Format::Q4_1,
    Format::Q4_0,
    Format::Q8_0,
    Format::Q5_0,
    Format::Q5_1,
    Format::F16,
    Format::BF16,
    Format::F32,
];

/// Runs `check` on every fixture, dequantised and in some quantised format with each type of keys and values; with one thread,
/// quantised weights stay in the file, which must not show either.
fn for_each_model(check: impl Fn(&str, &Tiny, &mut dyn FnMut(usize) -> Box<dyn Model>)) {
    for (i, (name, tiny)) in Tiny::all().into_iter().enumerate() {
        let file = tiny.gguf(Format::F32);
        let config = |threads| CpuConfig {
            threads: Some(threads),
            ..reference()
        };
        check(&format!("{name} reference"), &tiny, &mut |threads| {
            model(&file, config(threads))
        });
        for (k, kv_type) in [KvType::F16, KvType::BF16, KvType::Q8_0]
            .into_iter()
            .enumerate()
        {
            let format = FORMATS[(i + 3 * k) % FORMATS.len()];
            let file = tiny.gguf(format);
            let label = format!("{name} {}, {} KV", format.name(), kv_type.name());
            check(&label, &tiny, &mut |threads| {
                let weights = match threads {
                    1 => WeightForm::InFile,
                    2 => WeightForm::LaidOut,
                    _ => WeightForm::ExpertsInFile,
                };
                let config = CpuConfig {
                    kv_type,
                    ..quantised(threads)
                };
                model(&file, CpuConfig { weights, ..config })
            });
        }
    }
}

fn assert_same_bits(label: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(found.len(), expected.len(), "{label}");
    for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found
            .iter()
            .zip(expected)
            .all(|(f, e)| f.to_bits() == e.to_bits());
        assert!(
            same && found.len() == expected.len(),
            "{label}: row {row} differs"
        );
    }
}

#[test]
fn chunks_blocks_and_threads_do_not_matter() {
    for_each_model(|label, tiny, make| {
        let tokens = &tiny.tokens;
        let whole = run(&mut *make(2), tokens, &[80], &[0, 1, 2]);
        assert!(whole.iter().flatten().all(|x| x.is_finite()), "{label}");
        let cuts: [(&str, usize, &[usize], [u32; 3]); 5] = [
            ("one thread", 1, &[80], [0, 1, 2]),
            ("three threads", 3, &[80], [0, 1, 2]),
            ("token by token", 2, &[1; 80], [0, 1, 2]),
            ("ragged chunks", 2, &[1, 7, 30, 3, 2, 37], [0, 1, 2]),
            ("shuffled blocks", 1, &[33, 47], [17, 3, 9]),
        ];
        for (cut, threads, chunks, table) in cuts {
            let rows = run(&mut *make(threads), tokens, chunks, &table);
            assert_same_bits(&format!("{label}, {cut}"), &rows, &whole);
        }
    });
}

#[test]
fn neighbours_in_the_batch_do_not_matter() {
    for_each_model(|label, tiny, make| {
        let (tokens, model) = (&tiny.tokens, &mut *make(2));
        let alone = run(model, tokens, &[80], &[0, 1, 2]);
        let block_tokens = model.kv_layout().block_tokens;
        // Three sequences start apart: b is the prompt backwards, c the prompt from its tenth token on.
        let backwards: Vec<u32> = tokens.iter().rev().copied().collect();
        let (table_a, table_b, table_c) = ([8, 4, 6], [3, 5, 7], [10, 9, 11]);
        let mut step = |parts: &[(&[u32], u32, &[u32])]| {
            let mut batch = Batch::default();
            for (tokens, position, table) in parts {
                batch.push_sequence(tokens, *position, table, block_tokens, Logits::All);
            }
            model.forward(&batch).unwrap();
            let logits = model.logits().unwrap();
            (0..logits.rows())
                .map(|i| logits.row(i).to_vec())
                .collect::<Vec<_>>()
        };
        step(&[(&backwards[..40], 0, &table_b)]);
        let first = step(&[
            (&backwards[40..41], 40, &table_b),
            (&tokens[..50], 0, &table_a),
            (&tokens[10..33], 0, &table_c),
        ]);
        assert_same_bits(label, &first[1..51], &alone[..50]);
        let second = step(&[
            (&tokens[33..34], 23, &table_c),
            (&backwards[41..42], 41, &table_b),
            (&tokens[50..51], 50, &table_a),
        ]);
        assert_same_bits(label, &second[2..3], &alone[50..51]);
    });
}

#[test]
fn only_wanted_rows_get_logits() {
    let tiny = Tiny::named("gemma3");
    let file = tiny.gguf(Format::Q8_0);
    let model = &mut *model(&file, quantised(2));
    let all = run(model, &tiny.tokens, &[80], &[0, 1, 2]);
    let block_tokens = model.kv_layout().block_tokens;
    let mut batch = Batch::default();
    batch.push_sequence(&tiny.tokens[..40], 0, &[3, 4], block_tokens, Logits::None);
    model.forward(&batch).unwrap();
    assert_eq!(model.logits().unwrap().rows(), 0);
    batch.clear();
    batch.push_sequence(
        &tiny.tokens[40..70],
        40,
        &[3, 4, 5],
        block_tokens,
        Logits::Last,
    );
    batch.push_sequence(&tiny.tokens[..1], 0, &[6], block_tokens, Logits::None);
    batch.push_sequence(&tiny.tokens[..2], 0, &[7], block_tokens, Logits::Last);
    model.forward(&batch).unwrap();
    let logits = model.logits().unwrap();
    let found = vec![logits.row(0).to_vec(), logits.row(1).to_vec()];
    assert_same_bits("last rows", &found, &[all[69].clone(), all[1].clone()]);
}

#[test]
fn experts_of_any_format_work_row_by_row() {
    let tiny = Tiny::named("qwen3moe");
    for format in [
        Format::Q4_K,
        Format::Q6_K,
        Format::Q8_0,
        Format::MXFP4,
        Format::BF16,
    ] {
        let file = tiny.gguf(format);
        let run = |threads, chunks: &[usize]| {
            run(
                &mut *model(&file, quantised(threads)),
                &tiny.tokens,
                chunks,
                &[0, 1, 2],
            )
        };
        let whole = run(2, &[80]);
        assert_same_bits(format.name(), &run(1, &[1; 80]), &whole);
        assert_same_bits(format.name(), &run(3, &[1, 7, 30, 3, 2, 37]), &whole);
    }
}

/// Int8 activations and keys and values of fewer bits change logits only a little.
#[test]
fn quantised_arithmetic_stays_near_the_reference() {
    for (name, tiny) in Tiny::all() {
        let file = tiny.gguf(Format::Q8_0);
        let logits =
            |config: CpuConfig| run(&mut *model(&file, config), &tiny.tokens, &[80], &[0, 1, 2]);
        let exact = logits(reference());
        let error_of = |kv_type: KvType| {
            let config = quantised(2);
            let quantised = logits(CpuConfig { kv_type, ..config });
            let square = |x: f32| f64::from(x * x);
            let pairs = || exact.iter().flatten().zip(quantised.iter().flatten());
            let error: f64 = pairs().map(|(e, q)| square(e - q)).sum();
            let norm: f64 = pairs().map(|(e, _)| square(*e)).sum();
            (error / norm).sqrt()
        };
        // A row between two experts may take the other one.
        let experts = tiny.tensors.keys().any(|name| name.contains("_exps."));
        for kv_type in KvType::ALL {
            let few_bits = matches!(kv_type, KvType::BF16 | KvType::Q8_0);
            let factor = if few_bits { 2.0 } else { 1.0 };
            let most = factor * if experts { 0.1 } else { 0.05 };
            let relative = error_of(kv_type);
            assert!(
                relative > 0.0 && relative < most,
                "{name}, {kv_type:?}: relative error {relative}"
            );
        }
    }
}
