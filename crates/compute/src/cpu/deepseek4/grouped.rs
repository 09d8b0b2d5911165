//! Products of parts of rows with matrices of their own.

use crate::cpu::isa::Isa;
use crate::cpu::matmul::{
    ActivationBuffer, Form, Inputs, MIN_PRODUCTS, Matrix, Panel, SplitBuffer,
};
use crate::cpu::memory::sized;
use crate::cpu::ops::grain;
use crate::cpu::pool::{Output, Pool, STRIP, lock};
use std::sync::Mutex;

/// The groups' matrices, one below the other.
pub(super) struct Grouped<'a> {
    pub(super) isa: Isa,
    pub(super) matrix: &'a Matrix,
    pub(super) groups: usize,
}

/// Memory kept from call to call. All is ordered by group, then row.
#[derive(Default)]
pub(in crate::cpu) struct GroupedScratch {
    /// `[groups, n, cols]`.
    parts: Vec<f32>,
    quantized: ActivationBuffer,
    split: SplitBuffer,
    /// `[groups, n, rows of a group]`.
    results: Vec<f32>,
    bounds: Vec<usize>,
    panels: Vec<Mutex<Panel>>,
}

impl Grouped<'_> {
    pub(super) fn run(
        &self,
        pool: &Pool,
        scratch: &mut GroupedScratch,
        (out, x): (&mut [f32], &[f32]),
    ) {
        let (groups, cols) = (self.groups, self.matrix.cols());
        let (rows, n) = (self.matrix.rows() / groups, x.len() / (groups * cols));
        assert!(rows.is_multiple_of(STRIP), "a group has whole strips");
        if n == 0 {
            return;
        }
        let GroupedScratch {
            parts,
            quantized,
            split,
            results,
            bounds,
            panels,
        } = scratch;
        let parts = sized(parts, x.len());
        regroup(pool, (parts, x), (groups, n), cols);
        let form = self.matrix.form(self.isa);
        match form {
            Form::Quants(kind) => {
                let kinds = std::iter::once(kind);
                quantized.quantize((pool, self.isa), parts, groups * n, kinds);
            }
            Form::Split => split.split((pool, self.isa), parts, groups * n),
            Form::Floats => {}
        }
        bounds.clear();
        bounds.extend((0..=groups).map(|group| group * n));
        panels.resize_with(pool.threads().max(panels.len()), || {
            Mutex::new(Panel::of_thread(pool.threads()))
        });
        let results = sized(results, out.len());
        let output = Output {
            data: &mut *results,
            width: rows,
            strips: 1,
        };
        let (parts, panels) = (&*parts, &*panels);
        let least = MIN_PRODUCTS.div_ceil(n * cols * STRIP);
        pool.for_strips_of_runs(output, bounds, least, &|thread, group, mut strip| {
            let range = group * n..(group + 1) * n;
            let inputs = Inputs {
                quants: form.kind().map(|_| quantized.part(range.clone())),
                split: (form == Form::Split).then(|| split.part(range.clone())),
                floats: &parts[range.start * cols..range.end * cols],
            };
            let strips = group * (rows / STRIP) + strip.index();
            let panel = &mut lock(&panels[thread]);
            self.matrix
                .multiply_group(self.isa, inputs, panel, (strips, &mut strip));
        });
        regroup(pool, (out, results), (n, groups), rows);
    }
}

/// `to[a, b] = from[b, a]`, parts of `width` values; `to` has `a` times `b` of them.
fn regroup(pool: &Pool, (to, from): (&mut [f32], &[f32]), (a, b): (usize, usize), width: usize) {
    pool.for_rows(to, width, grain(width), &|first, to| {
        for (place, to) in (first..).zip(to.chunks_exact_mut(width)) {
            let (i, j) = (place / b, place % b);
            to.copy_from_slice(&from[(j * a + i) * width..][..width]);
        }
    });
}
