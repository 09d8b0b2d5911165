//! One vector of the hidden states of a text.

use andante_model::Pooling;

/// Hidden states as they come, in the order of the tokens; the sum does not depend on how they were cut into parts.
#[derive(Debug)]
pub(crate) struct Pool {
    pooling: Pooling,
    /// `[hidden]`
    vector: Vec<f32>,
    count: u32,
}

impl Pool {
    pub(crate) fn new(pooling: Pooling) -> Self {
        Self {
            pooling,
            vector: Vec::new(),
            count: 0,
        }
    }

    pub(crate) fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Takes the next token's state.
    pub(crate) fn add(&mut self, state: &[f32]) {
        self.count += 1;
        match self.pooling {
            Pooling::Mean if self.count > 1 => {
                for (sum, x) in self.vector.iter_mut().zip(state) {
                    *sum += x;
                }
            }
            Pooling::Mean | Pooling::Last => {
                self.vector.clear();
                self.vector.extend_from_slice(state);
            }
        }
    }

    /// Makes the vector of all states; whether it consists of numbers.
    pub(crate) fn finish(&mut self) -> bool {
        if self.pooling == Pooling::Mean {
            let factor = 1.0 / self.count as f32;
            self.vector.iter_mut().for_each(|x| *x *= factor);
        }
        self.vector.iter().all(|x| x.is_finite())
    }

    pub(crate) fn into_embedding(self) -> Vec<f32> {
        self.vector
    }
}
