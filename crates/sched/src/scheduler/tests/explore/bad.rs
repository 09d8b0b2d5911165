//! Known-bad policies: negative controls, each of which must break its invariant.

use super::{Domain, System};
use crate::step::{Prefill, SeqId, Step};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    /// Prompts whenever there are any.
    PrefillFirst,
    /// Decoders whenever one is ready.
    DecodeFirst,
    /// Decoders and a fixed number of tokens, whatever they cost.
    MixedFixed,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    id: SeqId,
    prompt: u32,
    answer: u32,
    computed: u32,
    generated: u32,
    ready: bool,
}

/// A scheduler with a bad policy: first come first served, a fixed chunk.
#[derive(Debug, Clone)]
pub(super) struct Baseline {
    pub(super) policy: Bad,
    pub(super) chunk: u32,
    pub(super) rows: Vec<Row>,
}

impl System for Baseline {
    fn add(&mut self, id: SeqId, domain: &Domain) {
        let index = id as usize;
        let prompt = domain.prompts[index].len() as u32;
        let answer = domain.answers[index];
        self.rows.push(Row {
            id,
            prompt,
            answer,
            computed: 0,
            generated: 0,
            ready: true,
        });
    }

    fn cancel(&mut self, id: SeqId) {
        self.rows.retain(|row| row.id != id);
    }

    fn ready(&mut self, id: SeqId) {
        self.rows.iter_mut().find(|row| row.id == id).unwrap().ready = true;
    }

    fn plan(&mut self) -> Option<Step> {
        let decode: Vec<SeqId> = self
            .rows
            .iter()
            .filter(|r| r.generated > 0 && r.ready)
            .map(|r| r.id)
            .collect();
        let mut left = self.chunk;
        if self.policy == Bad::MixedFixed {
            left -= u32::try_from(decode.len()).unwrap();
        }
        let mut prefill = Vec::new();
        for row in self.rows.iter().filter(|row| row.generated == 0) {
            let tokens = left.min(row.prompt - row.computed);
            if tokens > 0 {
                let last = row.computed + tokens == row.prompt;
                prefill.push(Prefill {
                    id: row.id,
                    start: row.computed,
                    tokens,
                    last,
                });
            }
            left -= tokens;
        }
        let (decode, prefill) = match self.policy {
            Bad::PrefillFirst if !prefill.is_empty() => (Vec::new(), prefill),
            Bad::DecodeFirst if !decode.is_empty() => (decode, Vec::new()),
            _ => (decode, prefill),
        };
        Some(Step {
            decode,
            prefill,
            ..Step::default()
        })
    }

    fn complete(&mut self, step: &Step) -> Result<(), &'static str> {
        for row in &mut self.rows {
            let range = step.prefill.iter().find(|range| range.id == row.id);
            row.computed += range.map_or(0, |range| range.tokens);
            if step.decode.contains(&row.id) || range.is_some_and(|range| range.last) {
                row.generated += 1;
                row.ready = false;
            }
        }
        self.rows.retain(|row| row.generated < row.answer);
        Ok(())
    }

    fn resident(&self, _: SeqId) -> bool {
        true
    }

    fn alive(&self, id: SeqId) -> bool {
        self.rows.iter().any(|row| row.id == id)
    }

    fn key(&self) -> Vec<u64> {
        self.rows.iter().map(|row| row.id).collect()
    }
}
