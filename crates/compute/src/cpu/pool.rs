//! Fork and join for operations that last microseconds.
//!
//! Workers wait for the next job by spinning briefly, because the operations of a forward pass follow each other at
//! once, and then park, so that an idle server costs nothing. The calling thread takes part in every job.
//! Also here: handing disjoint parts of one output to several threads, which is what nearly every job does.
#![expect(
    unsafe_code,
    reason = "jobs that borrow, and one output shared out to threads"
)]

use super::processors;
use crate::ComputeError;
use smallvec::SmallVec;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a thread spins before it parks: longer than the serial operations inside a forward pass, shorter than
/// anything a person or a power meter would notice.
const SPIN: Duration = Duration::from_micros(100);

type Job<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// A fixed set of threads that run one job at a time together.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held by the thread whose job runs.
    turn: Mutex<()>,
    /// The processor that a thread with a job keeps to.
    place: Option<usize>,
}

thread_local! {
    /// Whether this thread has been bound to a processor.
    static BOUND: Cell<bool> = const { Cell::new(false) };
}

impl Pool {
    /// A pool of `threads` threads in all, the caller's included; 0 counts as 1. With `bound`, each keeps to a processor,
    /// the caller's from its first job on.
    ///
    /// # Errors
    /// [`ComputeError::Thread`] when the system refuses to start one.
    pub(crate) fn new(threads: usize, bound: bool) -> Result<Self, ComputeError> {
        let threads = threads.max(1);
        let places = if bound {
            processors::places(threads)
        } else {
            Vec::new()
        };
        let shared = Arc::new(Shared {
            job: UnsafeCell::new(None),
            gate: AtomicU64::new(Gate::CLOSED),
            left: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            asleep: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            panic: Mutex::new(None),
            threads,
        });
        let workers = (1..threads)
            .map(|index| {
                let shared = Arc::clone(&shared);
                let place = places.get(index).copied();
                thread::Builder::new()
                    .name(format!("andante-cpu-{index}"))
                    .spawn(move || {
                        place.into_iter().for_each(processors::bind);
                        shared.work(index);
                    })
                    .map_err(ComputeError::Thread)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            shared,
            workers,
            turn: Mutex::new(()),
            place: places.first().copied(),
        })
    }

    /// Number of threads that run a job, the caller's included.
    pub(crate) fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Runs `job(thread_index, threads)` on this thread, which has index 0, and on the workers that come while it
    /// lasts; returns when all of them are done. The job has to find its own work, and one thread must be able to do
    /// all of it.
    ///
    /// Nothing waits for a worker that the system has given no processor yet: on a busy machine that is the difference
    /// between microseconds and milliseconds. A panic in any thread is raised again here, after all have ended. A job
    /// must not call its own pool.
    pub(crate) fn share(&self, job: &Job<'_>) {
        let threads = self.threads();
        if let Some(place) = self.place
            && !BOUND.replace(true)
        {
            processors::bind(place);
        }
        if threads == 1 {
            return job(0, 1);
        }
        let turn = lock(&self.turn);
        self.start(job);
        let own = catch_unwind(AssertUnwindSafe(|| job(0, threads)));
        self.shared.join();
        let other = lock(&self.shared.panic).take();
        drop(turn);
        if let Some(panic) = own.err().or(other) {
            resume_unwind(panic);
        }
    }

    /// Runs `job(i)` for every `i` of `0..count`, `grain` neighbours at a time on whichever thread is free.
    pub(crate) fn for_each(&self, count: usize, grain: usize, job: &(dyn Fn(usize) + Sync)) {
        self.for_each_on(count, grain, &|_, index| job(index));
    }

    /// [`Self::for_each`], where `job` gets its thread's index first.
    pub(crate) fn for_each_on(
        &self,
        count: usize,
        grain: usize,
        job: &(dyn Fn(usize, usize) + Sync),
    ) {
        let grain = grain.max(1);
        if count <= grain {
            return (0..count).for_each(|index| job(0, index));
        }
        let next = AtomicUsize::new(0);
        self.share(&|thread, _| take_turns(&next, count, grain, &|index| job(thread, index)));
    }

    /// Cuts `data`, rows of `width` elements, into runs of at least `grain` rows and runs `job(first_row, rows)` on
    /// each of them. The last row may be short.
    pub(crate) fn for_rows<T: Send>(
        &self,
        data: &mut [T],
        width: usize,
        grain: usize,
        job: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        let rows = data.len().div_ceil(width.max(1));
        let run = rows.div_ceil(self.runs()).max(grain).max(1);
        if rows <= run || self.threads() == 1 {
            return if rows > 0 {
                job(0, data);
            };
        }
        let runs = Runs::new(data, run * width);
        self.for_each(runs.count(), 1, &|index| {
            job(index * run, runs.take(index));
        });
    }

    /// How many runs to cut rows into: four a thread, enough to even out one that the system took away for a while.
    pub(crate) fn runs(&self) -> usize {
        (4 * self.threads()).min(MOST_RUNS)
    }

    /// Runs `job` once on every strip of every output, `grain` neighbouring strips at a time.
    ///
    /// `rows` is the number of rows of each output; `job` gets the thread's index, the output's index and the strip, which
    /// is as wide as the output says.
    pub(crate) fn for_strips(
        &self,
        outputs: &mut [Output<'_>],
        rows: usize,
        grain: usize,
        job: &(dyn Fn(usize, usize, Strip<'_>) + Sync),
    ) {
        let outputs: SmallVec<[_; TOGETHER]> = outputs
            .iter_mut()
            .map(|output| {
                assert!(
                    output.data.len() >= rows * output.width,
                    "an output holds {rows} rows"
                );
                let part = output.strips.max(1) * STRIP;
                (SendPtr(output.data.as_mut_ptr()), output.width, part)
            })
            .collect();
        let outputs = &outputs;
        let count = outputs
            .iter()
            .map(|&(_, width, part)| width.div_ceil(part))
            .sum();
        let run_one = |thread: usize, mut index: usize| {
            for (output, &(ref data, width, part)) in outputs.iter().enumerate() {
                let strips = width.div_ceil(part);
                if index < strips {
                    let start = index * part;
                    let columns = start..width.min(start + part);
                    return job(
                        thread,
                        output,
                        Strip {
                            data: data.0,
                            pitch: width,
                            columns,
                            rows,
                            owner: PhantomData,
                        },
                    );
                }
                index -= strips;
            }
        };
        let grain = grain.max(1);
        if count <= grain {
            return (0..count).for_each(|index| run_one(0, index));
        }
        let next = AtomicUsize::new(0);
        self.share(&|thread, _| take_turns(&next, count, grain, &|index| run_one(thread, index)));
    }

    /// Runs `job` once on every strip of [`STRIP`] columns of every run of rows of `output`, `grain` neighbouring
    /// strips at a time. Run `i` has the rows `bounds[i]..bounds[i + 1]`; `job` gets the thread's index, the run's index
    /// and the strip.
    pub(crate) fn for_strips_of_runs(
        &self,
        output: Output<'_>,
        bounds: &[usize],
        grain: usize,
        job: &(dyn Fn(usize, usize, Strip<'_>) + Sync),
    ) {
        let Output { data, width, .. } = output;
        let runs = bounds.len().saturating_sub(1);
        assert!(bounds.is_sorted(), "runs follow each other");
        assert!(
            bounds.last().is_none_or(|&end| end * width <= data.len()),
            "an output holds all runs"
        );
        let data = &SendPtr(data.as_mut_ptr());
        let strips = width.div_ceil(STRIP);
        let run_one = |thread: usize, index: usize| {
            let (run, start) = (index / strips, index % strips * STRIP);
            job(
                thread,
                run,
                Strip {
                    // Rows `bounds[run]..` of the output; the assertions above keep this inside it.
                    data: data.0.wrapping_add(bounds[run] * width),
                    pitch: width,
                    columns: start..width.min(start + STRIP),
                    rows: bounds[run + 1] - bounds[run],
                    owner: PhantomData,
                },
            );
        };
        let (count, grain) = (runs * strips, grain.max(1));
        if count <= grain {
            return (0..count).for_each(|index| run_one(0, index));
        }
        let next = AtomicUsize::new(0);
        self.share(&|thread, _| take_turns(&next, count, grain, &|index| run_one(thread, index)));
    }

    fn start(&self, job: &Job<'_>) {
        let shared = &*self.shared;
        // SAFETY: the lifetime is forgotten, not outlived: `share` returns only after `join` has closed the gate and seen
        // every worker that went through it leave, and it catches its own panic before that.
        let job = unsafe { std::mem::transmute::<&Job<'_>, &'static Job<'static>>(job) };
        // SAFETY: no worker reads the cell now: the gate is closed and all have left. No other caller writes it: `turn`
        // is held.
        unsafe { *shared.job.get() = Some((job, thread::current())) };
        shared.left.store(0, Ordering::Relaxed);
        shared.gate.store(shared.gate().next().0, Ordering::SeqCst);
        for (worker, asleep) in self.workers.iter().zip(&shared.asleep) {
            if asleep.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of its jobs, so it has none of its own to report.
            let _ = worker.join();
        }
    }
}

/// Columns in a strip: the output rows of a weight that a kernel computes together.
pub(crate) const STRIP: usize = 16;

/// One matrix that a job fills: `data` is `[rows, width]`.
pub(crate) struct Output<'a> {
    pub(crate) data: &'a mut [f32],
    pub(crate) width: usize,
    /// Strips that a kernel takes together, as one wide strip; at least 1.
    pub(crate) strips: usize,
}

/// Some neighbouring columns of an output, [`STRIP`] or a multiple of it but for the last, in all its rows; disjoint from
/// every other strip.
pub(crate) struct Strip<'a> {
    data: *mut f32,
    pitch: usize,
    columns: Range<usize>,
    rows: usize,
    owner: PhantomData<&'a mut f32>,
}

impl<'a> Strip<'a> {
    /// All of `data`, `[rows, width]`, as one strip of `width` columns.
    pub(crate) fn whole(data: &'a mut [f32], width: usize) -> Self {
        assert!(width <= STRIP && data.len().is_multiple_of(width));
        Self {
            rows: data.len() / width,
            data: data.as_mut_ptr(),
            pitch: width,
            columns: 0..width,
            owner: PhantomData,
        }
    }
}

impl Strip<'_> {
    /// Which strip of its output this is, or the first of those that it is made of.
    pub(crate) fn index(&self) -> usize {
        self.columns.start / STRIP
    }

    /// How many columns it has.
    pub(crate) fn width(&self) -> usize {
        self.columns.len()
    }

    /// The strip's part of row `index`.
    pub(crate) fn row(&mut self, index: usize) -> &mut [f32] {
        assert!(index < self.rows, "row {index} of {}", self.rows);
        // SAFETY: whoever made this strip checked that `data` holds `rows` rows of `pitch` columns and that `columns` lies
        // within them, and makes one strip for each range of rows and columns, so nobody else has these elements; the
        // borrow of `self` keeps the rows of this strip apart in time.
        unsafe {
            let start = self.data.add(index * self.pitch + self.columns.start);
            std::slice::from_raw_parts_mut(start, self.columns.len())
        }
    }
}

/// Neighbouring elements of a slice, cut into runs of the same length (the last may be shorter) that threads take.
pub(crate) struct Runs<'a, T> {
    data: SendPtr<T>,
    len: usize,
    run: usize,
    /// A bit for each run.
    taken: [AtomicU64; MOST_RUNS / 64],
    owner: PhantomData<&'a mut ()>,
}

/// The most runs of a slice: enough for any machine, and few enough to be remembered without asking for memory.
const MOST_RUNS: usize = 256;

impl<'a, T: 'a> Runs<'a, T> {
    /// Runs of `run` elements.
    pub(crate) fn new(data: &'a mut [T], run: usize) -> Self {
        assert!(data.len().div_ceil(run) <= MOST_RUNS, "too short a run");
        Self {
            len: data.len(),
            data: SendPtr(data.as_mut_ptr()),
            run,
            taken: [const { AtomicU64::new(0) }; MOST_RUNS / 64],
            owner: PhantomData,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.len.div_ceil(self.run)
    }

    /// A run, which nobody may take again.
    pub(crate) fn take(&self, index: usize) -> &'a mut [T] {
        assert!(index < self.count(), "run {index} of {}", self.count());
        let bit = 1 << (index % 64);
        let before = self.taken[index / 64].fetch_or(bit, Ordering::Relaxed);
        assert!(before & bit == 0, "run {index} is taken");
        let start = index * self.run;
        let len = self.run.min(self.len - start);
        // SAFETY: the run lies within the slice that this was made from, which is borrowed for `'a`; runs are disjoint and
        // nobody else has this one: its bit was not set before.
        unsafe { std::slice::from_raw_parts_mut(self.data.0.add(start), len) }
    }
}

/// Matrices that are usually multiplied in one call.
pub(crate) const TOGETHER: usize = 4;

struct SendPtr<T>(*mut T);

// SAFETY: the pointer is only turned into strips and runs, which are disjoint and live as long as the borrow they came from,
// and whose elements may be sent to other threads.
unsafe impl<T: Send> Sync for SendPtr<T> {}

/// What the caller and the workers share.
struct Shared {
    /// The state of the current job; see [`Gate`].
    gate: AtomicU64,
    /// The current job, and the thread that waits for its end.
    job: UnsafeCell<Option<(&'static Job<'static>, Thread)>>,
    /// Workers that have finished the current job.
    left: AtomicUsize,
    stop: AtomicBool,
    /// Workers that are parked or about to be.
    asleep: Vec<AtomicBool>,
    /// The first panic of a worker in the current job.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    threads: usize,
}

/// Which job is current and who takes part: the job's number, then one bit when no more workers may enter, then the
/// number that entered. One word, so that a worker cannot take one job for another.
#[derive(Clone, Copy)]
struct Gate(u64);

impl Gate {
    const ENTERED: u64 = 0xffff;
    const CLOSED: u64 = Self::ENTERED + 1;
    const JOB: u64 = Self::CLOSED << 1;

    /// Open for the job after this one.
    fn next(self) -> Self {
        Self(self.0 / Self::JOB * Self::JOB + Self::JOB)
    }

    fn job(self) -> u64 {
        self.0 / Self::JOB
    }

    fn is_closed(self) -> bool {
        self.0 & Self::CLOSED != 0
    }

    fn entered(self) -> usize {
        (self.0 & Self::ENTERED) as usize
    }
}

// SAFETY: `job` is the only field that is not `Sync` by itself; it is written by the thread that holds `turn` while the
// gate is closed and no worker is inside, and read by workers only inside.
unsafe impl Sync for Shared {}
// SAFETY: as above; the job itself is `Sync`.
unsafe impl Send for Shared {}

impl Shared {
    fn gate(&self) -> Gate {
        Gate(self.gate.load(Ordering::SeqCst))
    }

    /// A worker's life.
    fn work(&self, index: usize) {
        let mut seen = 0;
        while self.wait_past(index, seen) {
            let entered;
            (seen, entered) = self.enter();
            if !entered {
                continue;
            }
            // SAFETY: the job was written before the gate opened and stays until this worker has left.
            let (job, caller) =
                unsafe { (*self.job.get()).clone() }.expect("a job is there before the gate opens");
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(index, self.threads))) {
                lock(&self.panic).get_or_insert(panic);
            }
            self.left.fetch_add(1, Ordering::SeqCst);
            caller.unpark();
        }
    }

    /// Goes through the gate unless it is closed; which job it belongs to, and whether this worker is inside.
    fn enter(&self) -> (u64, bool) {
        let enter = |gate| (!Gate(gate).is_closed()).then_some(gate + 1);
        match self
            .gate
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, enter)
        {
            Ok(gate) => (Gate(gate).job(), true),
            Err(gate) => (Gate(gate).job(), false),
        }
    }

    /// Waits until there is a job after `seen`; false when the pool ends.
    fn wait_past(&self, index: usize, seen: u64) -> bool {
        let stop = || self.stop.load(Ordering::SeqCst);
        let ready = || self.gate().job() != seen || stop();
        if !spin_until(&ready) {
            let asleep = &self.asleep[index - 1];
            asleep.store(true, Ordering::SeqCst);
            while !ready() {
                thread::park();
            }
            asleep.store(false, Ordering::SeqCst);
        }
        !stop()
    }

    /// Ends the current job: lets no more workers in and waits until those inside have left.
    fn join(&self) {
        let inside = Gate(self.gate.fetch_or(Gate::CLOSED, Ordering::SeqCst)).entered();
        let done = || self.left.load(Ordering::SeqCst) == inside;
        if !spin_until(&done) {
            while !done() {
                thread::park();
            }
        }
    }
}

/// Takes runs of `grain` indices of `0..count` from `next` until none is left.
fn take_turns(next: &AtomicUsize, count: usize, grain: usize, job: &dyn Fn(usize)) {
    loop {
        let start = next.fetch_add(grain, Ordering::Relaxed);
        if start >= count {
            return;
        }
        (start..count.min(start + grain)).for_each(job);
    }
}

/// Spins for at most [`SPIN`]; whether the condition came true.
fn spin_until(condition: &dyn Fn() -> bool) -> bool {
    let mut began = None;
    loop {
        for _ in 0..64 {
            if condition() {
                return true;
            }
            std::hint::spin_loop();
        }
        if began.get_or_insert_with(Instant::now).elapsed() > SPIN {
            return false;
        }
    }
}

/// Locks, whether or not another thread panicked: the data guarded here stays valid.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
