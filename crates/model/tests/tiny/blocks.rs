//! Blocks that leave the model and come back, in another place or another process, and the name of what they mean.

use crate::fixture::{Tiny, model, quantised, reference, run};
use andante_compute::{CpuConfig, Isa, KvType};
use andante_gguf::{Format, GgufFile};
use andante_model::Model;

#[test]
fn a_prefix_of_copied_blocks_gives_the_same_bits() {
    for (i, (name, tiny)) in Tiny::all().into_iter().enumerate() {
        let file = tiny.gguf(Format::Q8_0);
        let kv_type = KvType::ALL[i % KvType::ALL.len()];
        let config = |threads| CpuConfig {
            kv_type,
            ..quantised(threads)
        };
        let mut first = model(&file, config(2));
        let whole = run(&mut *first, &tiny.tokens, &[80], &[4, 5, 6]);
        let mut second = model(&file, config(1));
        assert_eq!(first.kv_identity(), second.kv_identity());
        let mut bytes = vec![0; usize::try_from(first.kv_layout().block_bytes).unwrap()];
        for (from, to) in [(4, 20), (5, 11)] {
            first.read_block(from, &mut bytes);
            assert!(bytes.iter().any(|&byte| byte != 0));
            second.write_block(to, &bytes);
            first.write_block(to, &bytes);
        }
        let prefix = second.kv_layout().block_tokens as usize * 2;
        for model in [&mut first, &mut second] {
            let rest = rest(&mut **model, &tiny.tokens, prefix, &[20, 11, 1]);
            assert_eq!(rest, whole[prefix..], "{name}");
        }
        // The other way round the blocks say something else.
        let rest = rest(&mut *second, &tiny.tokens, prefix, &[11, 20, 1]);
        assert_ne!(rest, whole[prefix..], "{name}");
    }
}

/// Logits of the tokens from `prefix` on; the blocks hold what comes before.
fn rest(model: &mut dyn Model, tokens: &[u32], prefix: usize, table: &[u32]) -> Vec<Vec<f32>> {
    let mut batch = andante_compute::Batch::default();
    let block_tokens = model.kv_layout().block_tokens;
    let all = andante_compute::Logits::All;
    batch.push_sequence(&tokens[prefix..], prefix as u32, table, block_tokens, all);
    model.forward(&batch).unwrap();
    let logits = model.logits().unwrap();
    (0..logits.rows()).map(|i| logits.row(i).to_vec()).collect()
}

#[test]
fn whatever_changes_the_bits_changes_the_identity() {
    let tiny = Tiny::named("llama2");
    let identity =
        |file: &GgufFile, config: CpuConfig| -> [u8; 32] { model(file, config).kv_identity() };
    let bytes = tiny.gguf_bytes(Format::Q8_0);
    let file = tiny.gguf(Format::Q8_0);
    let mut seen = vec![identity(&file, quantised(1))];
    assert_eq!(identity(&file, quantised(2)), seen[0]);

    seen.push(identity(&file, reference()));
    for kv_type in [KvType::F32, KvType::BF16, KvType::Q8_0] {
        let config = quantised(1);
        seen.push(identity(&file, CpuConfig { kv_type, ..config }));
    }
    for isa in Isa::available() {
        let config = CpuConfig {
            isa: Some(isa),
            ..quantised(1)
        };
        if isa != Isa::detect() {
            seen.push(identity(&file, config));
        }
    }
    seen.push(identity(&tiny.gguf(Format::Q4_0), quantised(1)));
    // A weight at the end of the last tensor.
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    let other = GgufFile::from_bytes(other).unwrap();
    seen.push(identity(&other, quantised(1)));
    // A number in the metadata that enters the graph.
    let mut tiny = tiny;
    let key = "llama.rope.freq_base".to_owned();
    tiny.metadata.insert(key, serde_json::json!(20_000.0));
    seen.push(identity(&tiny.gguf(Format::Q8_0), quantised(1)));

    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
}
