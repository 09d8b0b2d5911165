//! Many heads against rows that all of them share: DeepSeek V4's keys, which are the values too, and its indexer's rows.
//!
//! Lanes are heads where rows meet queries, and dimensions where shares meet rows, so no sum ever runs across lanes. A score is
//! summed over the dimensions ascending and an output over the rows ascending, however many heads and rows are computed together.
//!
//! **What bounds it.** Multiply-adds: a tile of [`TOGETHER`] rows by two vectors of heads takes two of them a cycle from twelve
//! sums, and reads eight numbers for them.

use super::lanes::{Kernel, Lanes, MAX_LANES};

/// Rows that meet queries together: memory for rows and scores has room for whole multiples.
pub(crate) const TOGETHER: usize = 6;

/// Lays out the queries of some heads for [`Scores`]: `to`, `[width, pitch]`, from `from`, `[heads, width]`.
pub(crate) struct LayQueries<'a> {
    pub(crate) to: &'a mut [f32],
    pub(crate) from: &'a [f32],
    pub(crate) width: usize,
    /// A multiple of [`MAX_LANES`], at least the number of heads.
    pub(crate) pitch: usize,
    pub(crate) factor: f32,
}

impl LayQueries<'_> {
    pub(crate) fn run(self) {
        const BLOCK: usize = 16;
        let Self { width, pitch, .. } = self;
        for first in (0..width).step_by(BLOCK) {
            let part = first..width.min(first + BLOCK);
            let to = &mut self.to[first * pitch..part.end * pitch];
            for (head, query) in self.from.chunks_exact(width).enumerate() {
                for (to, x) in to.chunks_exact_mut(pitch).zip(&query[part.clone()]) {
                    to[head] = x * self.factor;
                }
            }
        }
    }
}

/// `scores[r, h]` = `rows[r] · queries[h]`.
pub(crate) struct Scores<'a> {
    /// `[rows, pitch]`, a multiple of [`TOGETHER`] rows.
    pub(crate) scores: &'a mut [f32],
    /// `[rows, row_pitch]`.
    pub(crate) rows: &'a [f32],
    /// At least `width`.
    pub(crate) row_pitch: usize,
    /// `[width, pitch]`, as [`LayQueries`] lays them.
    pub(crate) queries: &'a [f32],
    pub(crate) width: usize,
    pub(crate) pitch: usize,
}

impl Kernel for Scores<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let count = self.rows.len() / self.row_pitch;
        assert!(count.is_multiple_of(TOGETHER) && self.row_pitch >= self.width);
        assert!(self.pitch.is_multiple_of(MAX_LANES) && self.scores.len() == count * self.pitch);
        assert!(self.queries.len() == self.width * self.pitch);
        for first in (0..count).step_by(TOGETHER) {
            let mut column = 0;
            while column < self.pitch {
                let left = (self.pitch - column) / S::N;
                let tile = Tile {
                    a: self.rows[first * self.row_pitch..].as_ptr(),
                    row: self.row_pitch,
                    step: 1,
                    b: self.queries[column..].as_ptr(),
                    b_pitch: self.pitch,
                    depth: self.width,
                };
                let scores = &mut self.scores[first * self.pitch + column..];
                // SAFETY: by the assertions there are `TOGETHER` rows of `width` values from `first` on, and `left` vectors
                // from `column` on in every row of queries and of scores; `V` is at most `left`.
                unsafe {
                    let c = (scores.as_mut_ptr(), self.pitch);
                    column += S::N
                        * match left {
                            4.. if S::TILE_ROWS >= 2 * TOGETHER => tile.set::<S, TOGETHER, 4>(s, c),
                            2.. => tile.set::<S, TOGETHER, 2>(s, c),
                            _ => tile.set::<S, TOGETHER, 1>(s, c),
                        };
                }
            }
        }
    }
}

/// What a running softmax of each head has seen: a share is `2^(score - max)`.
pub(crate) struct Seen<'a> {
    /// `[pitch]`: the largest score.
    pub(crate) max: &'a mut [f32],
    /// `[pitch]`: the sum of shares.
    pub(crate) sum: &'a mut [f32],
    /// `[pitch]`: what earlier sums are multiplied by.
    pub(crate) kept: &'a mut [f32],
}

/// Turns the scores of further rows, `[rows, pitch]`, into shares.
pub(crate) struct Softmax<'a> {
    pub(crate) scores: &'a mut [f32],
    pub(crate) seen: Seen<'a>,
}

impl Kernel for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Seen { max, sum, kept } = self.seen;
        let pitch = max.len();
        for column in (0..pitch).step_by(S::N) {
            let before = s.load(&max[column..]);
            let scores = || self.scores.chunks_exact(pitch);
            let most = scores().fold(before, |most, row| s.max(most, s.load(&row[column..])));
            let factor = s.exp2(s.sub(before, most));
            let mut total = s.mul(s.load(&sum[column..]), factor);
            for row in self.scores.chunks_exact_mut(pitch) {
                let share = s.exp2(s.sub(s.load(&row[column..]), most));
                s.store(&mut row[column..], share);
                total = s.add(total, share);
            }
            s.store(&mut max[column..], most);
            s.store(&mut kept[column..], factor);
            s.store(&mut sum[column..], total);
        }
    }
}

/// `out[h]` = `kept[h] out[h]` + `Σ shares[r, h] rows[r]`.
pub(crate) struct Gather<'a> {
    /// `[heads, row_pitch]`.
    pub(crate) out: &'a mut [f32],
    /// `[pitch]`.
    pub(crate) kept: &'a [f32],
    /// `[rows, pitch]`.
    pub(crate) shares: &'a [f32],
    /// `[rows, row_pitch]`.
    pub(crate) rows: &'a [f32],
    /// A multiple of [`MAX_LANES`].
    pub(crate) row_pitch: usize,
    pub(crate) pitch: usize,
}

impl Kernel for Gather<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(mut self, s: S) {
        let (heads, rows) = (
            self.out.len() / self.row_pitch,
            self.rows.len() / self.row_pitch,
        );
        assert!(self.row_pitch.is_multiple_of(MAX_LANES) && heads <= self.pitch);
        assert!(self.shares.len() == rows * self.pitch && self.kept.len() == self.pitch);
        let mut column = 0;
        while column < self.row_pitch {
            let vectors = if self.row_pitch - column >= 2 * S::N {
                2
            } else {
                1
            };
            let mut head = 0;
            while head < heads {
                // SAFETY: by the assertions, whatever the tile takes from `head` and `column` on exists.
                head += unsafe {
                    match (heads - head, vectors) {
                        (12.., 2) if S::TILE_ROWS >= 12 => self.tile::<S, 12, 2>(s, head, column),
                        (8.., 2) if S::TILE_ROWS >= 8 => self.tile::<S, 8, 2>(s, head, column),
                        (6.., 2) => self.tile::<S, 6, 2>(s, head, column),
                        (4.., 2) => self.tile::<S, 4, 2>(s, head, column),
                        (2.., 2) => self.tile::<S, 2, 2>(s, head, column),
                        (_, 2) => self.tile::<S, 1, 2>(s, head, column),
                        (4.., _) => self.tile::<S, 4, 1>(s, head, column),
                        _ => self.tile::<S, 1, 1>(s, head, column),
                    }
                };
            }
            column += vectors * S::N;
        }
    }
}

impl Gather<'_> {
    /// # Safety
    /// `R` heads are there from `head` on, `V` vectors from `column` on.
    #[inline(always)]
    unsafe fn tile<S: Lanes, const R: usize, const V: usize>(
        &mut self,
        s: S,
        head: usize,
        column: usize,
    ) -> usize {
        let tile = Tile {
            a: self.shares[head.min(self.shares.len())..].as_ptr(),
            row: 1,
            step: self.pitch,
            b: self.rows[column.min(self.rows.len())..].as_ptr(),
            b_pitch: self.row_pitch,
            depth: self.rows.len() / self.row_pitch,
        };
        let out = &mut self.out[head * self.row_pitch + column..];
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [[s.splat(0.0); V]; R];
            for (r, sums) in sums.iter_mut().enumerate() {
                let kept = s.splat(self.kept[head + r]);
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = s.mul(
                        kept,
                        s.load_at(out.as_ptr().add(r * self.row_pitch + v * S::N)),
                    );
                }
            }
            let sums = tile.add::<S, R, V>(s, sums);
            store::<S, R, V>(s, sums, (out.as_mut_ptr(), self.row_pitch));
        }
        R
    }
}

/// `Σ a[r, k] b[k, columns]` over the depth: `a[r, k]` is at `r * row + k * step`.
struct Tile {
    a: *const f32,
    row: usize,
    step: usize,
    b: *const f32,
    b_pitch: usize,
    depth: usize,
}

impl Tile {
    /// Writes the sums of `R` rows and `V` vectors to `c`; how many vectors.
    ///
    /// # Safety
    /// All those elements exist.
    #[inline(always)]
    unsafe fn set<S: Lanes, const R: usize, const V: usize>(
        self,
        s: S,
        c: (*mut f32, usize),
    ) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            let sums = self.add::<S, R, V>(s, [[s.splat(0.0); V]; R]);
            store::<S, R, V>(s, sums, c);
        }
        V
    }

    /// # Safety
    /// As for [`Tile::set`].
    #[inline(always)]
    unsafe fn add<S: Lanes, const R: usize, const V: usize>(
        self,
        s: S,
        mut sums: [[S::V; V]; R],
    ) -> [[S::V; V]; R] {
        // SAFETY: the caller's promise.
        unsafe {
            let (mut a, mut b) = (self.a, self.b);
            for _ in 0..self.depth {
                let columns: [S::V; V] = std::array::from_fn(|v| s.load_at(b.add(v * S::N)));
                for (r, sums) in sums.iter_mut().enumerate() {
                    let factor = s.splat(*a.add(r * self.row));
                    for (sum, &column) in sums.iter_mut().zip(&columns) {
                        *sum = s.mul_add(factor, column, *sum);
                    }
                }
                a = a.wrapping_add(self.step);
                b = b.wrapping_add(self.b_pitch);
            }
        }
        sums
    }
}

/// # Safety
/// `R` rows of `V` vectors can be written at `c`, rows as far apart as it says.
#[inline(always)]
unsafe fn store<S: Lanes, const R: usize, const V: usize>(
    s: S,
    sums: [[S::V; V]; R],
    (c, pitch): (*mut f32, usize),
) {
    for (r, sums) in sums.iter().enumerate() {
        for (v, &sum) in sums.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { s.store_at(c.add(r * pitch + v * S::N), sum) };
        }
    }
}

/// `sums[r]` = `Σ weights[h] max(0, scores[r, h])`.
pub(crate) struct ScoreSums<'a> {
    pub(crate) sums: &'a mut [f32],
    /// `[rows, pitch]`, at least as many rows as sums.
    pub(crate) scores: &'a [f32],
    /// `[pitch]`.
    pub(crate) weights: &'a [f32],
    /// What lies behind them in a row is anything.
    pub(crate) heads: usize,
}

impl Kernel for ScoreSums<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let rows = self.scores.chunks_exact(self.weights.len());
        let weights = &self.weights[..self.heads];
        for (sum, row) in self.sums.iter_mut().zip(rows) {
            let mut total = s.splat(0.0);
            for (score, weight) in row[..self.heads].chunks(S::N).zip(weights.chunks(S::N)) {
                let positive = s.max(s.load_part(score), s.splat(0.0));
                total = s.mul_add(s.load_part(weight), positive, total);
            }
            *sum = s.sum(total);
        }
    }
}

#[cfg(test)]
mod tests;
