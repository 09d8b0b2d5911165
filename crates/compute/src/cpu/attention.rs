//! Attention over block tables: cutting a batch into tasks, and putting spans together.
//!
//! A *tile* is a few neighbouring rows of one sequence with the query heads that share a KV head; it reads each key and
//! value once. Tiles are independent tasks. Where there are too few of them to keep the threads busy (one row far into a
//! context), the spans of a tile are spread over several tasks too, and the last to finish merges them, in order.

use super::isa::Isa;
use super::kv::Blocks;
use super::memory::sized;
use super::pool::{Pool, lock};
use super::simd::attention::{
    Element, HeadBlock, Merge, Prepared, Queries, RowStates, SPAN, Span, SpanWork, States,
    most_rows, pitch,
};
use super::simd::lanes::dispatch;
use crate::{AttentionSpec, BLOCK_TOKENS, Batch};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Multiplications below which a second thread is not worth waking.
const MIN_SHARED_WORK: usize = 100_000;

/// Rows that are worth a tile of their own; the partial results of no more than these are small.
const LEAST_ROWS: usize = 48;

/// What attention needs to know of a call.
pub(super) struct Attention<'a, E> {
    pub(super) isa: Isa,
    pub(super) kv: &'a Blocks<E>,
    pub(super) layer: usize,
    pub(super) spec: &'a AttentionSpec,
    /// `[heads]`: a logit without a value.
    pub(super) sinks: Option<&'a [f32]>,
    pub(super) batch: &'a Batch,
    /// `[rows, heads, head_dim]`.
    pub(super) queries: &'a [f32],
}

/// Memory of attention, kept from call to call.
#[derive(Default)]
pub(super) struct AttentionScratch {
    /// Rows of the batch that tiles have between them.
    strips: Vec<Range<usize>>,
    tiles: Vec<Tile>,
    tasks: Vec<Task>,
    /// Of each task that is part of a family: what [`Attention::attend_apart`] says.
    partials: Vec<Mutex<Vec<f32>>>,
    /// Of each family's first task: how many of the family are done.
    finished: Vec<AtomicUsize>,
    threads: Vec<Mutex<Work>>,
}

/// Strips of a call whose outputs are found without asking for memory: all but those of long prompts.
const USUAL_STRIPS: usize = 64;

/// Neighbouring rows of one sequence, and some of their heads.
struct Tile {
    sequence: usize,
    strip: usize,
    heads: Range<usize>,
    rows: Range<usize>,      // of the batch
    positions: Range<usize>, // of the sequence
    spans: Range<usize>,     // that any of the rows sees
}

/// A KV head of a tile over some spans.
struct Task {
    tile: usize,
    head: usize,
    spans: Range<usize>,
    /// The tasks, itself included, that the spans of this tile and head are spread over.
    family: Range<usize>,
}

/// What one thread works with.
#[derive(Default)]
struct Work {
    span: SpanWork,
    visible: Vec<Range<usize>>,
    part: States,
    total: States,
}

impl<E: Element> Attention<'_, E> {
    /// Fills `out`, `[rows, heads, head_dim]`.
    pub(super) fn run(&self, out: &mut [f32], pool: &Pool, scratch: &mut AttentionScratch) {
        let threads = self.plan(pool.threads(), scratch);
        let AttentionScratch {
            strips,
            tiles,
            tasks,
            partials,
            finished,
            threads: works,
        } = scratch;
        let row_len = self.spec.heads * self.spec.head_dim;
        let outs = split(out, strips.iter().map(|rows| rows.len() * row_len));
        let finish = |tile: &Tile, head: usize, work: &mut Work| {
            let before = tile.rows.start - strips[tile.strip].start;
            let mut out = lock(&outs[tile.strip]);
            self.finish(tile, head, work, &mut out[before * row_len..]);
        };
        let (partials, finished) = (&*partials, &*finished);

        let next = AtomicUsize::new(0);
        let work = |thread: usize, _: usize| {
            let mut work = lock(&works[thread]);
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(task) = tasks.get(index) else { return };
                let tile = &tiles[task.tile];
                let _prepared = self.prepare(tile, task.head, &mut work);
                if task.is_whole() {
                    self.attend(tile, task, &mut work);
                    finish(tile, task.head, &mut work);
                    continue;
                }
                let len = self.partial_len(tile, task);
                let mut partial = lock(&partials[index]);
                self.attend_apart(tile, task, &mut work, sized(&mut partial, len));
                drop(partial);
                if finished[task.family.start].fetch_add(1, Ordering::AcqRel) + 1
                    == task.family.len()
                {
                    work.total.clear(
                        tile.positions.len() * self.group(),
                        pitch(self.spec.head_dim),
                    );
                    for part in task.family.clone() {
                        let len = self.partial_len(tile, &tasks[part]);
                        self.merge_apart(&lock(&partials[part])[..len], &mut work.total);
                    }
                    finish(tile, task.head, &mut work);
                }
            }
        };
        if threads == 1 {
            work(0, 1);
        } else {
            pool.share(&work);
        }
    }

    /// Query heads for each KV head.
    fn group(&self) -> usize {
        self.spec.heads / self.spec.kv_heads
    }

    /// Cuts the batch into tasks; the number of threads worth using.
    fn plan(&self, threads: usize, scratch: &mut AttentionScratch) -> usize {
        let AttentionScratch {
            strips,
            tiles,
            tasks,
            partials,
            finished,
            threads: works,
        } = scratch;
        strips.clear();
        tiles.clear();
        tasks.clear();
        for sequence in 0..self.batch.sequences.len() {
            self.cut(sequence, threads, strips, tiles);
        }
        let work_of = |tile: &Tile| tile.positions.len() * tile.spans.len();
        let of_heads = |tile: &Tile| work_of(tile) * tile.heads.len();
        let all = tiles.iter().map(of_heads).sum::<usize>();
        let work = all * SPAN * 2 * self.group() * self.spec.head_dim;
        let threads = if work < MIN_SHARED_WORK { 1 } else { threads };
        // What a task should do, in the units of `work_of`. Spans that are worked out apart cost memory and merging, more
        // with more rows; with few rows, four tasks a thread even out what one of them loses to other programs.
        let share = |tile: &Tile| {
            let few = tile.positions.len() * self.group() <= LEAST_ROWS;
            let tasks = if few { 4 * threads } else { threads };
            all.div_ceil(tasks).max(1)
        };
        // Later rows of a sequence see more: the longest tasks go first.
        for (index, tile) in tiles.iter().enumerate().rev() {
            let parts = match threads {
                1 => 1,
                _ => (2 * work_of(tile) / share(tile)).div_ceil(2),
            };
            let count = parts.clamp(1, tile.spans.len());
            for head in tile.heads.clone() {
                let family = tasks.len()..tasks.len() + count;
                for part in 0..count {
                    let at = |part: usize| tile.spans.start + part * tile.spans.len() / count;
                    tasks.push(Task {
                        tile: index,
                        head,
                        spans: at(part)..at(part + 1),
                        family: family.clone(),
                    });
                }
            }
        }
        if works.len() < threads {
            works.resize_with(threads, Mutex::default);
        }
        if threads > 1 {
            let count = tasks.len().max(partials.len());
            partials.resize_with(count, Mutex::default);
            finished.clear();
            finished.resize_with(count, AtomicUsize::default);
        }
        threads
    }

    /// Cuts a sequence's rows into strips of nearly the same size, and those into tiles, so many that the threads get
    /// equal shares. Each tile converts all keys and values that it sees, so they are as few as they can be: where the
    /// heads of the last strip do not come out even, only those left over are cut again.
    fn cut(
        &self,
        sequence: usize,
        threads: usize,
        strips: &mut Vec<Range<usize>>,
        tiles: &mut Vec<Tile>,
    ) {
        let info = &self.batch.sequences[sequence];
        let (start, len) = (info.rows.start as usize, info.rows.len());
        let heads = self.spec.kv_heads;
        let most = (most_rows::<E>(self.isa) / self.group()).max(1);
        let mut count = len.div_ceil(most);
        let worth = |tiles: usize| len * self.group() >= tiles * LEAST_ROWS;
        let left_over = |count: usize| count * heads % threads;
        while left_over(count) > heads && worth(count + 1) {
            count += 1;
        }
        let pieces = threads / gcd(left_over(count), threads);
        let over = if left_over(count) <= heads && worth(count * pieces) {
            left_over(count)
        } else {
            0
        };
        let part = |rows: &Range<usize>, index: usize, of: usize| {
            rows.start + index * rows.len() / of..rows.start + (index + 1) * rows.len() / of
        };
        for strip in 0..count {
            let rows = part(&(start..start + len), strip, count);
            let over = if strip + 1 == count { over } else { 0 };
            let whole = (rows.clone(), 0..heads - over);
            let cut = (0..pieces).map(|piece| (part(&rows, piece, pieces), heads - over..heads));
            for (rows, heads) in std::iter::once(whole).chain(cut) {
                if !rows.is_empty() && !heads.is_empty() {
                    tiles.push(self.tile(sequence, strips.len(), rows, heads));
                }
            }
            strips.push(rows);
        }
    }

    fn tile(&self, sequence: usize, strip: usize, rows: Range<usize>, heads: Range<usize>) -> Tile {
        let first = self.batch.positions[rows.start] as usize;
        let positions = first..first + rows.len();
        let spans = self.visible(first).start / SPAN..(positions.end - 1) / SPAN + 1;
        Tile {
            sequence,
            strip,
            heads,
            rows,
            positions,
            spans,
        }
    }

    /// The positions that a row at `position` sees.
    fn visible(&self, position: usize) -> Range<usize> {
        let start = self
            .spec
            .window
            .map_or(0, |window| (position + 1).saturating_sub(window as usize));
        start..position + 1
    }

    /// Lays out a tile's queries.
    fn prepare(&self, tile: &Tile, head: usize, work: &mut Work) -> Prepared {
        let (group, head_dim) = (self.group(), self.spec.head_dim);
        let row = |index: usize| {
            let row =
                (tile.rows.start + index / group) * self.spec.heads + head * group + index % group;
            &self.queries[row * head_dim..][..head_dim]
        };
        let queries = Queries {
            row: &row,
            rows: tile.rows.len() * group,
            head_dim,
            factor: self.spec.scale * std::f32::consts::LOG2_E,
        };
        work.span.prepare::<E>(self.isa, queries)
    }

    /// One span; leaves the result in `work.part`.
    fn span(&self, tile: &Tile, head: usize, span: usize, work: &mut Work) {
        let start = span * SPAN;
        work.visible.clear();
        for position in tile.positions.clone() {
            let visible = self.visible(position);
            let clip = |p: usize| p.clamp(start, start + SPAN) - start;
            let visible = clip(visible.start)..clip(visible.end);
            work.visible
                .extend(std::iter::repeat_n(visible, self.group()));
        }
        let sequence = &self.batch.sequences[tile.sequence];
        let table =
            &self.batch.block_tables[sequence.blocks.start as usize..sequence.blocks.end as usize];
        let end = tile.positions.end.min(start + SPAN);
        let (now, later) = table[start / BLOCK_TOKENS..]
            .split_at(end.div_ceil(BLOCK_TOKENS) - start / BLOCK_TOKENS);
        let head_block = |block: u32| self.kv.head_block(block as usize, self.layer, head);
        let mut blocks = [head_block(now[0]); SPAN / BLOCK_TOKENS];
        for (to, &block) in blocks.iter_mut().zip(now).skip(1) {
            *to = head_block(block);
        }
        let blocks: &[HeadBlock<'_, E>] = &blocks[..now.len()];
        let then = later
            .first()
            .map_or(blocks[0], |&block| head_block(block))
            .keys;
        let span = Span {
            head_dim: self.spec.head_dim,
            blocks,
            then,
            visible: &work.visible,
        };
        work.span.attend(self.isa, span, &mut work.part);
    }

    /// All spans of a task, merged into `work.total`.
    fn attend(&self, tile: &Tile, task: &Task, work: &mut Work) {
        work.total
            .clear(tile.rows.len() * self.group(), pitch(self.spec.head_dim));
        for span in task.spans.clone() {
            self.span(tile, task.head, span, work);
            let part = &work.part;
            self.merge(&mut work.total, (&part.out, &part.max, &part.sum));
        }
    }

    /// Length of the results of a task's spans, each on its own: `[spans]` of `[rows, pitch]`, `[rows]`, `[rows]`.
    fn partial_len(&self, tile: &Tile, task: &Task) -> usize {
        task.spans.len() * tile.rows.len() * self.group() * (pitch(self.spec.head_dim) + 2)
    }

    /// All spans of a task, each on its own.
    fn attend_apart(&self, tile: &Tile, task: &Task, work: &mut Work, partial: &mut [f32]) {
        let len = partial.len() / task.spans.len();
        for (span, partial) in task.spans.clone().zip(partial.chunks_exact_mut(len)) {
            self.span(tile, task.head, span, work);
            let (out, max_sum) = partial.split_at_mut(work.part.out.len());
            let (max, sum) = max_sum.split_at_mut(work.part.max.len());
            out.copy_from_slice(&work.part.out);
            max.copy_from_slice(&work.part.max);
            sum.copy_from_slice(&work.part.sum);
        }
    }

    /// Merges what [`Attention::attend_apart`] left.
    fn merge_apart(&self, partial: &[f32], total: &mut States) {
        let rows = total.max.len();
        for partial in partial.chunks_exact(rows * (pitch(self.spec.head_dim) + 2)) {
            let (out, max_sum) = partial.split_at(total.out.len());
            let (max, sum) = max_sum.split_at(rows);
            self.merge(total, (out, max, sum));
        }
    }

    /// Adds the next span to what the spans before it gave.
    fn merge(&self, total: &mut States, (out, max, sum): (&[f32], &[f32], &[f32])) {
        let total = RowStates {
            out: &mut total.out,
            max: &mut total.max,
            sum: &mut total.sum,
        };
        let pitch = pitch(self.spec.head_dim);
        dispatch(
            self.isa,
            Merge {
                total,
                out,
                max,
                sum,
                pitch,
            },
        );
    }

    /// Divides by the sum of weights and writes the tile's part of the output.
    fn finish(&self, tile: &Tile, head: usize, work: &mut Work, out: &mut [f32]) {
        let (group, head_dim) = (self.group(), self.spec.head_dim);
        let Work { part, total, .. } = work;
        if let Some(sinks) = self.sinks {
            let sinks = &sinks[head * group..][..group];
            part.clear(total.sum.len(), pitch(head_dim));
            for (row, max) in part.max.iter_mut().enumerate() {
                *max = sinks[row % group] * std::f32::consts::LOG2_E;
            }
            part.sum.fill(1.0);
            self.merge(total, (&part.out, &part.max, &part.sum));
        }
        for (row, from) in total.out.chunks_exact(pitch(head_dim)).enumerate() {
            let to = (row / group * self.spec.heads + head * group + row % group) * head_dim;
            let factor = 1.0 / total.sum[row];
            for (to, from) in out[to..to + head_dim].iter_mut().zip(from) {
                *to = from * factor;
            }
        }
        debug_assert_eq!(total.sum.len(), tile.rows.len() * group);
    }
}

impl Task {
    /// Whether it covers all spans of its tile.
    fn is_whole(&self) -> bool {
        self.family.len() == 1
    }
}

/// The greatest number that divides both; the other where one is 0.
fn gcd(a: usize, b: usize) -> usize {
    if a == 0 { b } else { gcd(b % a, a) }
}

/// Cuts `data` into pieces of these lengths, one owner each.
fn split(
    mut data: &mut [f32],
    lens: impl Iterator<Item = usize>,
) -> SmallVec<[Mutex<&mut [f32]>; USUAL_STRIPS]> {
    lens.map(|len| Mutex::new(data.split_off_mut(..len).expect("the pieces fit")))
        .collect()
}
