//! A group of packed rows unpacked to bytes, which many activation rows then share; and the portable kernel. That one is
//! for machines without vector kernels and for checking those: it is bound by what the compiler makes of its loops.
//!
//! **The arithmetic that every kernel does.** For an output (lane, row), over the spans of the weight in order, each
//! 32 columns, or 16 for Q2_K, Q3_K and Q6_K:
//!
//! ```text
//! i   = sum over the span of (q - offset) * a                    exact, int32
//! acc = fma(scale * activation_scale, f32(i), acc)
//! acc = fma(min, activation_scale * sum of a, acc)               formats with a minimum
//! ```
//!
//! from zero. The integer sum's order is free because it is exact; the floating-point steps happen in this order for
//! every instruction set, number of rows and number of threads, so all of them give the same bits.

use super::activations::{Activations, Quants};
use super::dense::Floats;
use super::packed::{BLOCK, Group, Kind, Line, Piece, QUADS};
use super::stored::StoredPanel;
use crate::cpu::pool::{STRIP, Strip};

/// An unpacked group.
#[derive(Default)]
pub(crate) struct Panel {
    /// `[blocks * 8]` quads, one byte a value.
    pub(crate) quants: Vec<Line>,
    /// `[spans]`
    pub(crate) scales: Vec<Floats>,
    /// `[spans]`; empty for formats without a minimum.
    pub(crate) mins: Vec<Floats>,
    /// For formats without a packed kernel, instead of the others.
    pub(crate) stored: StoredPanel,
    /// How many groups after the one in hand the thread's next one probably is: as many as there are threads.
    pub(crate) ahead: usize,
}

impl Panel {
    /// For one of so many threads that take groups in turn.
    pub(crate) fn of_thread(threads: usize) -> Self {
        Self {
            ahead: threads,
            ..Self::default()
        }
    }

    /// Makes room for a group; what is in it is for the caller to overwrite.
    pub(crate) fn resize(&mut self, group: &Group<'_>) {
        self.quants.resize(group.blocks * QUADS, Line([0; 64]));
        let scales = group.kind.scales;
        let spans = group.blocks * scales.spans();
        self.scales.resize(spans, Floats([0.0; STRIP]));
        let mins = if scales.has_min() { spans } else { 0 };
        self.mins.resize(mins, Floats([0.0; STRIP]));
    }

    /// The quads of the group last unpacked. Values of eight bits are bytes already and stay where they are.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn quants_of<'a>(&'a self, group: &Group<'a>) -> &'a [Line] {
        if group.kind.bits == 8 {
            group.quants
        } else {
            &self.quants
        }
    }

    fn unpack(&mut self, group: &Group<'_>) {
        self.resize(group);
        let bits = group.kind.bits;
        for (packed, quads) in group
            .quants
            .chunks_exact(bits)
            .zip(self.quants.chunks_exact_mut(QUADS))
        {
            unpack_block(group.kind, packed, quads);
        }
        let span = group.kind.span();
        for (index, scales) in self.scales.iter_mut().enumerate() {
            let (block, column) = (index * span / BLOCK, index * span % BLOCK);
            *scales = Floats(std::array::from_fn(|lane| group.scale(block, lane, column)));
        }
        for (index, mins) in self.mins.iter_mut().enumerate() {
            let (block, column) = (index * span / BLOCK, index * span % BLOCK);
            *mins = Floats(std::array::from_fn(|lane| group.min(block, lane, column)));
        }
    }
}

fn unpack_block(kind: Kind, packed: &[Line], quads: &mut [Line]) {
    let table = kind.codes.table();
    for (quad, line) in quads.iter_mut().enumerate() {
        let [first, second] = Piece::of(kind.bits, quad);
        for (byte, value) in line.0.iter_mut().enumerate() {
            let code =
                first.read(packed[first.line].0[byte]) | second.read(packed[second.line].0[byte]);
            *value = table.map_or(code, |table| table[usize::from(code)]);
        }
    }
}

/// The portable kernel: fills `out` with the products of the group and every activation row.
pub(crate) fn multiply(group: &Group<'_>, x: &Activations, panel: &mut Panel, out: &mut Strip<'_>) {
    panel.unpack(group);
    let (blocks, span) = (group.blocks, group.kind.span());
    let spans = panel.scales.len();
    for row in 0..x.rows() {
        let (quants, starts) = (
            &x.quants(row)[..blocks],
            &x.starts(group.kind, row)[..spans],
        );
        let mut acc = [0.0_f32; STRIP];
        for (index, &start) in starts.iter().enumerate() {
            let block = index * span / BLOCK;
            let lines = &panel.quants[index * span / 4..][..span / 4];
            let sums = dot(lines, &quants[block], index * span % BLOCK, start);
            let scale = x.scales(row)[block];
            for (acc, (sum, weight)) in acc.iter_mut().zip(sums.iter().zip(panel.scales[index].0)) {
                *acc = (weight * scale).mul_add(*sum as f32, *acc);
            }
            if let Some(mins) = panel.mins.get(index) {
                let sum = x.sums(group.kind, row)[index];
                for (acc, min) in acc.iter_mut().zip(mins.0) {
                    *acc = min.mul_add(sum, *acc);
                }
            }
        }
        let out = out.row(row);
        out.copy_from_slice(&acc[..out.len()]);
    }
}

fn dot(lines: &[Line], x: &Quants, first: usize, start: i32) -> [i32; STRIP] {
    let mut sums = [start; STRIP];
    for (line, x) in lines.iter().zip(x.0[first..].as_chunks::<4>().0) {
        for (sum, weights) in sums.iter_mut().zip(line.0.as_chunks::<4>().0) {
            *sum += weights
                .iter()
                .zip(x)
                .map(|(&w, &x)| i32::from(w) * i32::from(x))
                .sum::<i32>();
        }
    }
    sums
}
