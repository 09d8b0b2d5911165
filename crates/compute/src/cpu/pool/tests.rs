//! Every index runs once, parts are disjoint, panics come out, threads end.

use super::{Output, Pool, Runs, STRIP};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn pool(threads: usize) -> Pool {
    Pool::new(threads, false).expect("threads start")
}

/// Runs `job` on every thread of the pool: nobody leaves before all have come.
fn on_all(pool: &Pool, job: &(dyn Fn(usize) + Sync)) {
    let come = AtomicUsize::new(0);
    pool.share(&|index, threads| {
        assert_eq!(threads, pool.threads());
        come.fetch_add(1, Ordering::SeqCst);
        while come.load(Ordering::SeqCst) < threads {
            std::thread::yield_now();
        }
        job(index);
    });
}

#[test]
fn a_thread_takes_part_in_a_job_once() {
    for threads in [0, 1, 2, 3, 5] {
        let pool = pool(threads);
        assert_eq!(pool.threads(), threads.max(1));
        let calls: Vec<_> = (0..pool.threads()).map(|_| AtomicUsize::new(0)).collect();
        for round in 0..50 {
            if round % 10 == 9 {
                // Long enough for the workers to park.
                std::thread::sleep(Duration::from_millis(1));
            }
            // A job that workers may miss must not be taken for the next one, which they may not.
            pool.share(&|_, _| {});
            on_all(&pool, &|index| {
                calls[index].fetch_add(1, Ordering::Relaxed);
            });
        }
        let counts: Vec<_> = calls.into_iter().map(AtomicUsize::into_inner).collect();
        assert_eq!(counts, vec![50; pool.threads()]);
    }
}

#[test]
fn a_job_ends_when_its_slowest_thread_has_left() {
    let pool = pool(2);
    let done = AtomicUsize::new(0);
    on_all(&pool, &|index| {
        if index == 1 {
            std::thread::sleep(Duration::from_millis(3));
        }
        done.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(done.into_inner(), 2);
}

#[test]
fn a_job_does_not_wait_for_a_worker_that_is_busy_elsewhere() {
    let pool = pool(2);
    for round in 0..2_000 {
        let inside = AtomicUsize::new(0);
        pool.share(&|_, _| {
            inside.fetch_add(1, Ordering::SeqCst);
            inside.fetch_add(10, Ordering::SeqCst);
        });
        let inside = inside.into_inner();
        assert!(inside == 11 || inside == 22, "round {round}: {inside}");
    }
}

#[test]
fn a_panic_of_any_thread_reaches_the_caller_and_the_pool_lives_on() {
    let pool = pool(3);
    for culprit in 0..3 {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            on_all(&pool, &|index| {
                assert_ne!(index, culprit, "thread {culprit} fails");
            });
        }));
        assert!(outcome.is_err());
        let count = AtomicUsize::new(0);
        on_all(&pool, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 3);
    }
}

#[test]
fn rows_are_cut_without_gap_or_overlap() {
    for threads in 1..4 {
        let pool = pool(threads);
        for (len, width, grain) in [
            (0, 3, 1),
            (1, 3, 1),
            (3000, 3, 1),
            (3001, 3, 7),
            (90, 90, 1),
            (64, 1, 100),
        ] {
            let mut data = vec![0_usize; len];
            pool.for_rows(&mut data, width, grain, &|first, rows| {
                for (offset, value) in rows.iter_mut().enumerate() {
                    *value += first * width + offset + 1;
                }
            });
            assert!(
                data.iter()
                    .enumerate()
                    .all(|(index, &value)| value == index + 1)
            );
        }
    }
}

#[test]
fn strips_of_runs_cover_every_element_of_their_rows_once() {
    let (bounds, width) = ([1, 3, 3, 7], STRIP + 5);
    for threads in 1..4 {
        for grain in [1, 3, 1000] {
            let mut data = vec![0.0; 8 * width];
            let output = Output {
                data: &mut data,
                width,
                strips: 1,
            };
            pool(threads).for_strips_of_runs(output, &bounds, grain, &|thread, run, mut strip| {
                assert!(thread < threads);
                let first = strip.index() * STRIP;
                for row in bounds[run]..bounds[run + 1] {
                    let values = strip.row(row - bounds[run]).iter_mut();
                    for (offset, value) in values.enumerate() {
                        *value += (row * width + first + offset) as f32;
                    }
                }
            });
            for (index, &value) in data.iter().enumerate() {
                let expected = if (1..7).contains(&(index / width)) {
                    index as f32
                } else {
                    0.0
                };
                assert_eq!(value, expected, "element {index}");
            }
        }
    }
}

#[test]
fn strips_cover_every_column_of_every_output_once() {
    for threads in 1..4 {
        let pool = pool(threads);
        for grain in [1, 3, 1000] {
            let rows = 3;
            let widths = [1, STRIP, 2 * STRIP + 5];
            let mut data: Vec<_> = widths.iter().map(|width| vec![0.0; rows * width]).collect();
            let mut outputs: Vec<_> = data
                .iter_mut()
                .zip(widths)
                .zip([1, 1, 2])
                .map(|((data, width), strips)| Output {
                    data,
                    width,
                    strips,
                })
                .collect();
            pool.for_strips(&mut outputs, rows, grain, &|thread, output, mut strip| {
                assert!(thread < threads);
                let first = strip.index() * STRIP;
                for row in 0..rows {
                    for (offset, value) in strip.row(row).iter_mut().enumerate() {
                        *value += (row * widths[output] + first + offset + 1) as f32;
                    }
                }
            });
            for data in data {
                assert!(
                    data.iter()
                        .enumerate()
                        .all(|(index, &value)| value == (index + 1) as f32)
                );
            }
        }
    }
}

#[test]
fn a_run_is_taken_once() {
    let mut data: Vec<usize> = (0..10).collect();
    {
        let runs = Runs::new(&mut data, 4);
        assert_eq!(runs.count(), 3);
        for index in [2, 0, 1] {
            runs.take(index).fill(index);
        }
        for index in 0..4 {
            let again = catch_unwind(AssertUnwindSafe(|| runs.take(index).len()));
            assert!(again.is_err(), "run {index}");
        }
    }
    assert_eq!(data, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
}
