//! Cosines and sines of a step's positions: worked out once, used by every layer and head of the step.

use super::isa::Isa;
use super::pool::Pool;
use super::simd::elementwise::Rotate;
use super::simd::lanes::dispatch;
use crate::RopeTable;

/// The angles of the last positions asked for, for each of the few tables a model has.
#[derive(Default)]
pub(super) struct Angles {
    entries: Vec<Entry>,
}

/// Tables whose angles are kept: a model has one or two, DeepSeek V4 five.
const KEPT_TABLES: usize = 5;

struct Entry {
    table: RopeTable,
    positions: Vec<u32>,
    /// `[rows, 2, rotary_dim]`: cosines, then sines, one for each turning element of a head. The first of a pair turns
    /// by `x cos - y sin`, so its sine is negative.
    angles: Vec<f32>,
}

impl Angles {
    /// `[positions, 2, rotary_dim]`.
    pub(super) fn of(&mut self, table: &RopeTable, positions: &[u32], pool: &Pool) -> &[f32] {
        let index = self
            .entries
            .iter()
            .position(|entry| entry.table == *table)
            .unwrap_or_else(|| {
                if self.entries.len() == KEPT_TABLES {
                    self.entries.remove(0);
                }
                self.entries.push(Entry {
                    table: table.clone(),
                    positions: Vec::new(),
                    angles: Vec::new(),
                });
                self.entries.len() - 1
            });
        let entry = &mut self.entries[index];
        if entry.positions != positions {
            entry.update(positions, pool);
        }
        &entry.angles
    }
}

impl Entry {
    fn update(&mut self, positions: &[u32], pool: &Pool) {
        let rotary_dim = self.table.rotary_dim();
        self.positions.clear();
        self.positions.extend_from_slice(positions);
        self.angles.resize(positions.len() * 2 * rotary_dim, 0.0);
        // A sine in double precision takes some 20 ns: a few rows are worth a second thread.
        pool.for_rows(&mut self.angles, 2 * rotary_dim, 8, &|first, rows| {
            for (angles, &position) in rows
                .chunks_exact_mut(2 * rotary_dim)
                .zip(&positions[first..])
            {
                fill(&self.table, position, angles);
            }
        });
    }
}

/// Turns every head of a row by the angles of its position.
pub(super) fn turn(isa: Isa, rope: &RopeTable, angles: &[f32], row: &mut [f32]) {
    let (cos, sin) = angles.split_at(rope.rotary_dim());
    dispatch(
        isa,
        Rotate {
            row,
            head_dim: rope.head_dim(),
            start: rope.start(),
            cos,
            sin,
            style: rope.style(),
        },
    );
}

/// The angles of one position, `[2, rotary_dim]`.
pub(super) fn fill(table: &RopeTable, position: u32, angles: &mut [f32]) {
    let (cosines, sines) = angles.split_at_mut(table.rotary_dim());
    for pair in 0..table.rotary_dim() / 2 {
        let (cos, sin) = table.cos_sin(position, pair);
        let (first, second) = table.pair(pair);
        let (first, second) = (first - table.start(), second - table.start());
        (cosines[first], cosines[second]) = (cos as f32, cos as f32);
        (sines[first], sines[second]) = (-sin as f32, sin as f32);
    }
}
