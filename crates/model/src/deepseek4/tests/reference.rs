//! Against the reference in double precision. The prompt's tokens are such that no choice of experts or rows is a close one, so that
//! rounding changes none.

use super::*;
use sha2::{Digest, Sha256};

const LOGITS: &[u8] = include_bytes!("logits.f32"); // [300, 512]
const ATTENTION: &[u8] = include_bytes!("attn.f32"); // [layers, positions, 256]
const FEED_FORWARD: &[u8] = include_bytes!("ffn.f32"); // [layers, positions, 256]
const EXPERTS: &[u8] = include_bytes!("experts.i32"); // [layers, 300, 2]
const ROWS: [(usize, &[u8]); 2] = [
    (1, include_bytes!("rows0.bits")), // [300, 10]: a bit for each of 75 rows, the lowest first
    (3, include_bytes!("rows1.bits")),
];
const LONG_POSITIONS: &[u8] = include_bytes!("long_positions.i32");
const LONG_LOGITS: &[u8] = include_bytes!("long_logits.f32"); // [positions, 512]

/// The positions whose layers' outputs are there.
const POSITIONS: [usize; 25] = [
    0, 1, 2, 3, 4, 7, 8, 30, 31, 32, 33, 63, 64, 67, 68, 126, 127, 128, 129, 130, 255, 256, 257,
    298, 299,
];

/// What the page about the reference asks of F32: the smallest of 37 plausible mistakes moves logits by 1.6e-4.
const TOLERANCE: f32 = 1e-4;

#[test]
fn the_formula_gives_the_same_file_in_any_language() {
    let hash = |bytes: &[u8]| -> String {
        let digest = Sha256::digest(bytes);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let expected = "57527ab10eec1e6650f1b97baeb0faa15fa6eb216e53575da07e92b212c2a05e";
    assert_eq!(hash(&portable::gguf()), expected);
    let ids: Vec<u8> = portable::ids(300)
        .iter()
        .flat_map(|id| id.to_le_bytes())
        .collect();
    let expected = "f1db54a09e406b0151bbbcc85babd10583f414a832d539def640740def10083b";
    assert_eq!(hash(&ids), expected);
    assert_eq!(portable::ids(8), [396, 149, 115, 131, 170, 426, 291, 508]);
}

#[test]
fn logits_are_the_references() {
    let (tokens, table) = (portable::ids(300), table(10, 0));
    let sequence = Sequence {
        tokens: &tokens,
        table: &table,
        state: 3,
    };
    let model = &mut model(exact(2));
    let expected = floats(LOGITS);
    for (what, chunks) in [
        ("prefill", &[300][..]),
        ("single steps", &[1; 300]),
        ("ragged chunks", &[3, 97, 2, 61, 7, 130]),
    ] {
        let found = sequence.run(model, 0, chunks);
        assert_close(what, &found, &expected, TOLERANCE);
    }
}

#[test]
fn long_logits_are_the_references() {
    let (tokens, table) = (portable::ids(2048), table(64, 0));
    let sequence = Sequence {
        tokens: &tokens,
        table: &table,
        state: 0,
    };
    let model = &mut model(exact(2));
    let all = sequence.run(model, 0, &[2048]);
    let vocab = portable::VOCAB as usize;
    let (positions, _) = LONG_POSITIONS.as_chunks::<4>();
    let found: Vec<f32> = positions
        .iter()
        .flat_map(|at| &all[u32::from_le_bytes(*at) as usize * vocab..][..vocab])
        .copied()
        .collect();
    assert_close("2,048 tokens", &found, &floats(LONG_LOGITS), 5e-4);
}

#[test]
fn layers_and_choices_are_the_references() {
    let (tokens, table) = (portable::ids(300), table(10, 0));
    let sequence = Sequence {
        tokens: &tokens,
        table: &table,
        state: 0,
    };
    let model = &mut model(exact(2));
    model.trace = Some(Trace::default());
    sequence.run(model, 0, &[300]);
    let trace = model.trace.take().unwrap();
    let hidden = portable::HIDDEN as usize;
    for (half, expected) in [
        (Half::Attention, ATTENTION),
        (Half::FeedForward, FEED_FORWARD),
    ] {
        let of_layer = POSITIONS.len() * hidden;
        for (layer, expected) in floats(expected).chunks_exact(of_layer).enumerate() {
            let all = &trace.deltas[&(layer, half)];
            let rows = POSITIONS
                .iter()
                .flat_map(|at| &all[at * hidden..][..hidden]);
            let found: Vec<f32> = rows.copied().collect();
            assert_close(
                &format!("layer {layer}, {half:?}"),
                &found,
                expected,
                TOLERANCE,
            );
        }
    }
    let (experts, _) = EXPERTS.as_chunks::<4>();
    let expected: Vec<u32> = experts.iter().map(|id| u32::from_le_bytes(*id)).collect();
    for (layer, expected) in expected.chunks_exact(600).enumerate() {
        assert_eq!(trace.experts[&layer], expected, "experts of layer {layer}");
    }
    for (layer, expected) in ROWS {
        for (position, (found, seen)) in trace.rows[&layer]
            .chunks_exact(8)
            .zip(expected.chunks_exact(10))
            .enumerate()
        {
            let found: Vec<u32> = found
                .iter()
                .copied()
                .filter(|&row| row != u32::MAX)
                .collect();
            let is_seen = |row: &u32| seen[*row as usize / 8] >> (row % 8) & 1 == 1;
            let expected: Vec<u32> = (0..75).filter(is_seen).collect();
            assert_eq!(found, expected, "layer {layer}, position {position}");
        }
    }
}
