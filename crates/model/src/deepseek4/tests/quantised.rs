//! A file in the formats of ds4's 2-bit files, by its dequantised weights and by kernels of integers.

use super::*;
use andante_gguf::Format;
use sha2::{Digest, Sha256};

/// `[positions, vocab]`, of a prompt of 160 tokens.
const LOGITS: &[u8] = include_bytes!("logits_quantised.f32");

/// Those whose logits `scripts/make_deepseek4_fixtures.py` keeps.
pub(super) const POSITIONS: [usize; 22] = [
    0, 1, 2, 3, 4, 7, 8, 30, 31, 32, 33, 63, 64, 67, 68, 126, 127, 128, 129, 130, 157, 158,
];

fn file() -> Vec<u8> {
    portable::File::quantised().bytes(Format::F32)
}

fn logits(config: CpuConfig) -> Vec<f32> {
    let (tokens, table) = (portable::ids(160), table(2, 0));
    let sequence = Sequence {
        tokens: &tokens,
        table: &table,
        state: 0,
    };
    let model = &mut reserved(try_load(file(), config).unwrap());
    let (all, vocab) = (sequence.run(model, 0, &[160]), portable::VOCAB as usize);
    let rows = POSITIONS.iter().flat_map(|at| &all[at * vocab..][..vocab]);
    rows.copied().collect()
}

#[test]
fn its_file_is_the_references() {
    let digest = Sha256::digest(file());
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hash,
        "916fba3f9e6e05d7eeb832c03eda0f504fb925d830b9ea342ce0886c3b39ec8a"
    );
}

#[test]
fn dequantised_weights_give_the_references_logits() {
    let expected = floats(LOGITS);
    assert_close(
        "dequantised",
        &logits(exact(2)),
        &expected,
        reference::TOLERANCE,
    );
}
