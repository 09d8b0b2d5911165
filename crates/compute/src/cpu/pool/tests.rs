//! Every index runs once, parts are disjoint, panics come out, threads end.

use super::{Output, Pool, STRIP};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn pool(threads: usize) -> Pool {
    Pool::new(threads).expect("threads start")
}

#[test]
fn every_thread_runs_every_job_once() {
    for threads in [0, 1, 2, 3, 5] {
        let pool = pool(threads);
        assert_eq!(pool.threads(), threads.max(1));
        let calls: Vec<_> = (0..pool.threads()).map(|_| AtomicUsize::new(0)).collect();
        for round in 0..200 {
            if round % 50 == 49 {
                // Long enough for the workers to park.
                std::thread::sleep(Duration::from_millis(1));
            }
            pool.run(&|index, total| {
                assert_eq!(total, pool.threads());
                calls[index].fetch_add(1, Ordering::Relaxed);
            });
        }
        assert!(
            calls
                .iter()
                .all(|count| count.load(Ordering::Relaxed) == 200)
        );
    }
}

#[test]
fn the_caller_parks_when_a_worker_is_slow() {
    let pool = pool(2);
    let done = AtomicUsize::new(0);
    pool.run(&|index, _| {
        if index == 1 {
            std::thread::sleep(Duration::from_millis(3));
        }
        done.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(done.into_inner(), 2);
}

#[test]
fn shared_work_does_not_wait_for_a_worker_that_is_not_there() {
    let pool = pool(2);
    let (come, never) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for round in 0..2_000 {
        let done = AtomicUsize::new(0);
        pool.share(&|index, _| {
            if index == 1 {
                come.fetch_add(1, Ordering::Relaxed);
            }
            done.fetch_add(1, Ordering::Relaxed);
        });
        // Nobody is inside any more, whether or not the worker came.
        let done = done.into_inner();
        assert!(done == 1 || done == 2, "round {round}");
        never.fetch_add(2 - done, Ordering::Relaxed);
    }
    assert_eq!(come.into_inner() + never.into_inner(), 2_000);
}

#[test]
fn jobs_for_all_run_once_between_jobs_that_workers_may_miss() {
    let pool = pool(3);
    for _ in 0..500 {
        pool.share(&|_, _| {});
        let calls = [(); 3].map(|()| AtomicUsize::new(0));
        pool.run(&|index, _| {
            calls[index].fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(calls.map(AtomicUsize::into_inner), [1, 1, 1]);
    }
}

#[test]
fn a_panic_of_any_thread_reaches_the_caller_and_the_pool_lives_on() {
    let pool = pool(3);
    for culprit in 0..3 {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            pool.run(&|index, _| assert_ne!(index, culprit, "thread {culprit} fails"));
        }));
        assert!(outcome.is_err());
        let count = AtomicUsize::new(0);
        pool.run(&|_, _| {
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
                .map(|(data, width)| Output { data, width })
                .collect();
            pool.for_strips(&mut outputs, rows, grain, &|thread, output, mut strip| {
                assert!(thread < threads);
                let first = strip.index() * STRIP;
                for row in 0..strip.rows() {
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
