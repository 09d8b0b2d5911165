//! Filling a batch.

use super::*;

#[test]
fn rows_get_positions_slots_and_logit_rows() {
    let mut batch = Batch::default();
    batch.push_sequence(&[7, 8, 9], 3, &[5, 2, 11], 4, Logits::Last);
    batch.push_sequence(&[1, 2], 0, &[6], 4, Logits::All);
    batch.push_sequence(&[4], 8, &[1, 0, 3], 4, Logits::None);

    assert_eq!(batch.len(), 6);
    assert_eq!(batch.tokens, [7, 8, 9, 1, 2, 4]);
    assert_eq!(batch.positions, [3, 4, 5, 0, 1, 8]);
    assert_eq!(
        batch.slots,
        [5 * 4 + 3, 2 * 4, 2 * 4 + 1, 6 * 4, 6 * 4 + 1, 3 * 4]
    );
    assert_eq!(batch.block_tables, [5, 2, 6, 1, 0, 3]);
    assert_eq!(
        batch.sequences[0],
        BatchSequence {
            rows: 0..3,
            blocks: 0..2
        }
    );
    assert_eq!(
        batch.sequences[1],
        BatchSequence {
            rows: 3..5,
            blocks: 2..3
        }
    );
    assert_eq!(
        batch.sequences[2],
        BatchSequence {
            rows: 5..6,
            blocks: 3..6
        }
    );
    assert_eq!(batch.logit_rows, [2, 3, 4]);

    batch.clear();
    assert_eq!(batch, Batch::default());
}

#[test]
#[should_panic(expected = "the block table covers every position")]
fn a_short_block_table_is_a_bug() {
    Batch::default().push_sequence(&[1, 2], 3, &[0], 4, Logits::None);
}
