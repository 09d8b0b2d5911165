//! The rows of one forward pass, as plain arrays.

use std::ops::Range;

/// One forward pass. A row is one token of one sequence; the rows of a sequence are contiguous and
/// in position order, at consecutive positions.
///
/// A batch is refilled for every step ([`Batch::clear`], [`Batch::push_sequence`]) and keeps its memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Token id of each row.
    pub tokens: Vec<u32>,
    /// Position of each row in its sequence, from 0.
    pub positions: Vec<u32>,
    /// Where each row's key and value go: `block * block_tokens + offset`.
    pub slots: Vec<u32>,
    /// The sequences, in row order; together they cover all rows.
    pub sequences: Vec<BatchSequence>,
    /// The block tables of all sequences, one after the other.
    pub block_tables: Vec<u32>,
    /// The slot of each sequence's running state; empty for a model that has none.
    pub states: Vec<u32>,
    /// Rows whose logits are wanted, ascending.
    pub logit_rows: Vec<u32>,
    /// Rows whose final hidden states are wanted, ascending.
    pub state_rows: Vec<u32>,
}

/// The part of a [`Batch`] that belongs to one sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSequence {
    /// Its rows.
    pub rows: Range<u32>,
    /// Its entries in [`Batch::block_tables`]: entry `i` is the physical block that holds positions
    /// `i * block_tokens ..`. Covers every position from 0 to the sequence's last row.
    pub blocks: Range<u32>,
}

/// Which rows of a sequence need logits, or their final hidden states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logits {
    /// None: an inner chunk of a prompt.
    None,
    /// The last row only: the next token is sampled from it.
    Last,
    /// Every row.
    All,
    /// The last row's hidden state, in place of logits.
    LastState,
    /// Every row's hidden state.
    AllStates,
}

impl Batch {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.slots.clear();
        self.sequences.clear();
        self.block_tables.clear();
        self.states.clear();
        self.logit_rows.clear();
        self.state_rows.clear();
    }

    /// Appends `tokens` of one sequence, the first of them at `first_position`.
    ///
    /// `block_table[i]` is the physical block that holds positions `i * block_tokens ..`; entries beyond the
    /// last row's block are ignored.
    ///
    /// # Panics
    /// If `tokens` is empty or the block table does not reach the last row.
    #[expect(
        clippy::too_many_arguments,
        reason = "the five facts of a sequence's rows, written once here and called in one place"
    )]
    pub fn push_sequence(
        &mut self,
        tokens: &[u32],
        first_position: u32,
        block_table: &[u32],
        block_tokens: u32,
        logits: Logits,
    ) {
        assert!(
            !tokens.is_empty(),
            "a sequence in a batch has at least one row"
        );
        let first_row = index(self.tokens.len());
        let last_row = first_row + index(tokens.len()) - 1;
        let last_position = first_position + index(tokens.len()) - 1;
        let used = (last_position / block_tokens) as usize + 1;
        assert!(
            used <= block_table.len(),
            "the block table covers every position"
        );

        self.tokens.extend_from_slice(tokens);
        for position in first_position..=last_position {
            let block = block_table[(position / block_tokens) as usize];
            self.positions.push(position);
            self.slots
                .push(block * block_tokens + position % block_tokens);
        }
        let first_block = index(self.block_tables.len());
        self.block_tables.extend_from_slice(&block_table[..used]);
        self.sequences.push(BatchSequence {
            rows: first_row..last_row + 1,
            blocks: first_block..index(self.block_tables.len()),
        });
        match logits {
            Logits::None => {}
            Logits::Last => self.logit_rows.push(last_row),
            Logits::All => self.logit_rows.extend(first_row..=last_row),
            Logits::LastState => self.state_rows.push(last_row),
            Logits::AllStates => self.state_rows.extend(first_row..=last_row),
        }
    }
}

/// Row and block numbers are `u32`, as a device wants them.
fn index(n: usize) -> u32 {
    u32::try_from(n).expect("a batch has fewer than 2^32 rows and blocks")
}

#[cfg(test)]
mod tests;
