//! Once a model has made its largest step, a step asks the system for no memory: whatever the rows, on all threads.
//!
//! A program of its own, with one test: the count is of the whole process.

#[path = "tiny/counting.rs"]
mod counting;
#[path = "tiny/fixture.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod fixture;

use std::sync::atomic::Ordering;

use andante_compute::{Batch, Logits};
use andante_gguf::Format;
use counting::ALLOCATIONS;
use fixture::{Tiny, model, quantised};

#[test]
fn a_step_allocates_nothing() {
    let formats = [
        Format::Q4_0,
        Format::Q8_0,
        Format::BF16,
        Format::Q5_0,
        Format::F32,
    ];
    for ((name, tiny), format) in Tiny::all().into_iter().zip(formats.into_iter().cycle()) {
        for threads in [1, 2] {
            let mut model = model(&tiny.gguf(format), quantised(threads));
            let block_tokens = model.kv_layout().block_tokens;
            let tables: [[u32; 3]; 2] = [[0, 1, 2], [5, 4, 3]];
            let tokens = &tiny.tokens;
            let mut batch = Batch::default();
            // One row, rows of several sequences, a prompt beside them; at the end of the context, where most is read.
            let steps: [&[(usize, usize, usize)]; 3] = [
                &[(0, 79, 1)],
                &[(0, 79, 1), (1, 78, 1)],
                &[(0, 79, 1), (1, 40, 39)],
            ];
            let mut step = |rows: &[(usize, usize, usize)]| {
                batch.clear();
                for &(sequence, start, len) in rows {
                    let (tokens, table) = (&tokens[start..start + len], &tables[sequence]);
                    batch.push_sequence(tokens, start as u32, table, block_tokens, Logits::Last);
                }
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                model.forward(&batch).expect("a step");
                model.logits().expect("logits");
                ALLOCATIONS.load(Ordering::Relaxed) - before
            };
            step(&[(0, 0, 80), (1, 0, 80)]);
            for rows in steps {
                // Which thread works on what is chance, and each has memory of its own: it takes some steps until all have it.
                let still = (0..50).any(|_| [(); 5].map(|()| step(rows)) == [0; 5]);
                assert!(
                    still,
                    "{name} {} {threads} threads: {rows:?}",
                    format.name()
                );
            }
        }
    }
}
