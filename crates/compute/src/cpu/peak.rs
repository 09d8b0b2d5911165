//! What this machine can do at most: the rate at which threads read memory, and the rates of the instructions that the
//! kernels are made of. Measured, since neither can be asked for; a kernel is judged by how near it comes.

use super::memory::Pages;
use super::pool::Pool;
use super::simd::matmul::peak::{bf16_multiply_adds, float_multiply_adds, int8_multiply_adds};
use super::{CpuConfig, Isa};
use crate::ComputeError;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The machine's limits with some number of threads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    /// Threads that were measured, together.
    pub threads: usize,
    /// Instructions that were measured.
    pub isa: Isa,
    /// Bytes read from memory in a second.
    pub read_bytes_per_s: f64,
    /// Products of 8-bit integers, each added to a sum, in a second.
    pub int8_macs_per_s: f64,
    /// Products of 32-bit floats, each added to a sum, in a second.
    pub float_macs_per_s: f64,
    /// Products of bfloat16 weights and 32-bit floats, each added to a sum, in a second.
    pub bf16_macs_per_s: f64,
}

/// The buffer that is read: some times the size of the largest caches, so that they hold little of it.
const BUFFER_BYTES: usize = 2 << 30;
/// Bytes that a thread reads before it takes the next piece.
const PIECE: usize = 1 << 20;
/// How long one rate of multiply-adds is measured.
const SPAN: Duration = Duration::from_millis(50);
/// The best of so many is taken: other processes only ever take away.
const ATTEMPTS: usize = 4;

impl Peak {
    /// Measures with the threads and instructions of a configuration; takes about two seconds and, meanwhile, 2 GiB.
    ///
    /// # Errors
    /// [`ComputeError::Thread`] and [`ComputeError::OutOfMemory`].
    pub fn measure(config: &CpuConfig) -> Result<Self, ComputeError> {
        let pool = Pool::new(config.thread_count(), config.bound)?;
        let isa = config.isa.unwrap_or_else(Isa::detect);
        Ok(Self {
            threads: pool.threads(),
            isa,
            read_bytes_per_s: read_rate(&pool, BUFFER_BYTES)?,
            int8_macs_per_s: rate(&pool, &|| int8_multiply_adds(isa)),
            float_macs_per_s: rate(&pool, &|| float_multiply_adds(isa)),
            bf16_macs_per_s: rate(&pool, &|| bf16_multiply_adds(isa)),
        })
    }
}

fn read_rate(pool: &Pool, bytes: usize) -> Result<f64, ComputeError> {
    let mut buffer = Pages::<u64>::new(bytes / size_of::<u64>(), "measuring the memory")?;
    let piece = PIECE / size_of::<u64>();
    // Pages exist only once they are written.
    pool.for_rows(&mut buffer, piece, 1, &|_, words| words.fill(1));
    let mut best = f64::INFINITY;
    for _ in 0..ATTEMPTS {
        let start = Instant::now();
        pool.for_each(buffer.len() / piece, 1, &|index| {
            black_box(sum(&buffer[index * piece..][..piece]));
        });
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(bytes as f64 / best)
}

/// Reads `words`: more sums than one, so that no addition waits for another.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0_u64; 32];
    for words in words.as_chunks::<32>().0 {
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

/// Operations per second of all threads together, each running `work` over and over, which returns how many it did.
fn rate(pool: &Pool, work: &(dyn Fn() -> u64 + Sync)) -> f64 {
    let mut best = 0.0_f64;
    for _ in 0..ATTEMPTS {
        let done = AtomicU64::new(0);
        let start = Instant::now();
        pool.share(&|_, _| {
            while start.elapsed() < SPAN {
                done.fetch_add(work(), Ordering::Relaxed);
            }
        });
        best = best.max(done.into_inner() as f64 / start.elapsed().as_secs_f64());
    }
    best
}

#[cfg(test)]
mod tests {
    use super::{rate, read_rate, sum};
    use crate::cpu::pool::Pool;
    use crate::cpu::simd::matmul::peak::{
        bf16_multiply_adds, float_multiply_adds, int8_multiply_adds,
    };
    use crate::{ComputeError, Isa};

    #[test]
    fn every_word_is_read() {
        let words: Vec<u64> = (0..4096).collect();
        assert_eq!(sum(&words), 4095 * 4096 / 2);
    }

    #[test]
    fn rates_are_those_of_work_that_was_done() -> Result<(), ComputeError> {
        let pool = Pool::new(2, false)?;
        assert!(read_rate(&pool, 8 << 20)?.is_finite());
        for isa in Isa::available() {
            assert!(rate(&pool, &|| int8_multiply_adds(isa)) > 0.0, "{isa}");
            assert!(rate(&pool, &|| float_multiply_adds(isa)) > 0.0, "{isa}");
            assert!(rate(&pool, &|| bf16_multiply_adds(isa)) > 0.0, "{isa}");
        }
        Ok(())
    }
}
