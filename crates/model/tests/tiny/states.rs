//! Hidden states: what the output matrix is multiplied with, the same bits beside logits of others and however cut.

use crate::fixture::{Tiny, model, quantised, reference, run};
use andante_compute::{Batch, Logits};
use andante_gguf::{Format, GgufFile};
use andante_model::Model;

/// The states of all rows of `tokens`, run in chunks, beside the last row of another sequence.
fn states(model: &mut dyn Model, tokens: &[u32], chunks: &[usize]) -> Vec<Vec<f32>> {
    let block_tokens = model.kv_layout().block_tokens;
    let mut rows = Vec::new();
    for &chunk in chunks {
        let start = rows.len();
        let mut batch = Batch::default();
        let neighbour = (&tokens[..3], 0, &[9, 8, 7]);
        batch.push_sequence(
            neighbour.0,
            neighbour.1,
            neighbour.2,
            block_tokens,
            Logits::Last,
        );
        let part = &tokens[start..start + chunk];
        batch.push_sequence(
            part,
            start as u32,
            &[0, 1, 2],
            block_tokens,
            Logits::AllStates,
        );
        model.forward(&batch).unwrap();
        assert_eq!(model.logits().unwrap().rows(), 1);
        let found = model.states().unwrap();
        rows.extend((0..chunk).map(|row| found.row(row).to_vec()));
    }
    rows
}

/// `[vocab, hidden]`
fn output(file: &GgufFile) -> Vec<f32> {
    let tensor = file.tensor("output.weight");
    let tensor = tensor.or_else(|| file.tensor("token_embd.weight")).unwrap();
    let words = tensor.data.as_chunks::<4>().0;
    words.iter().map(|&word| f32::from_le_bytes(word)).collect()
}

#[test]
fn the_output_matrix_makes_logits_of_states() {
    for (name, tiny) in Tiny::all() {
        let file = tiny.gguf(Format::F32);
        let mut model = model(&file, reference());
        let logits = run(&mut *model, &tiny.tokens, &[80], &[0, 1, 2]);
        let states = states(&mut *model, &tiny.tokens, &[80]);
        let output = output(&file);
        for (row, (state, logits)) in states.iter().zip(&logits).enumerate() {
            for (weights, logit) in output.chunks_exact(state.len()).zip(logits) {
                let product: f32 = weights.iter().zip(state).map(|(w, s)| w * s).sum();
                let close = (product - logit).abs() <= 1e-4 * (1.0 + logit.abs());
                assert!(close, "{name}, row {row}: {product} instead of {logit}");
            }
        }
    }
}

#[test]
fn chunks_do_not_matter() {
    for (name, tiny) in Tiny::all() {
        let file = tiny.gguf(Format::Q8_0);
        let of = |chunks: &[usize]| states(&mut *model(&file, quantised(2)), &tiny.tokens, chunks);
        assert!(of(&[80]) == of(&[1, 7, 33, 39]), "{name}");
    }
}
