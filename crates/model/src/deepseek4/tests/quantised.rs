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

/// Of all 160 tokens.
fn logits(config: CpuConfig) -> Vec<f32> {
    let (tokens, table) = (portable::ids(160), table(2, 0));
    let sequence = Sequence {
        tokens: &tokens,
        table: &table,
        state: 0,
    };
    let model = &mut reserved(try_load(file(), config).unwrap());
    sequence.run(model, 0, &[160])
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

/// By dequantised weights the logits are the reference's. By kernels of integers they are about as near as llama.cpp's are, whose
/// mean error on this file is 0.091 with keys in F32 and 0.117 in F16, and whose most likely token is another at 18 of 160
/// positions in both (commit 0c1e570; logits have a deviation of 2). Which of the close choices fall otherwise is chance, and
/// makes most of the error: ours are 0.125 and 0.095, 17 and 21.
#[test]
fn logits_are_the_references() {
    let exact = logits(exact(2));
    let vocab = portable::VOCAB as usize;
    let kept = POSITIONS
        .iter()
        .flat_map(|at| &exact[at * vocab..][..vocab]);
    let kept: Vec<f32> = kept.copied().collect();
    assert_close("dequantised", &kept, &floats(LOGITS), reference::TOLERANCE);
    for kv_type in [KvType::F32, KvType::F16] {
        let config = CpuConfig {
            threads: Some(2),
            kv_type,
            ..CpuConfig::default()
        };
        let found = logits(config);
        let errors = found.iter().zip(&exact).map(|(a, b)| (a - b).abs());
        let mean = errors.sum::<f32>() / found.len() as f32;
        assert!(mean > 0.0 && mean < 0.15, "{kv_type:?}: mean error {mean}");
        let rows = found.chunks(vocab).zip(exact.chunks(vocab));
        let others = rows.filter(|(a, b)| best(a) != best(b)).count();
        assert!(others <= 24, "{kv_type:?}: {others} other tokens");
    }
}
