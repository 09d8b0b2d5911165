//! Vectors of `f32` for kernels written once: one trait, an implementation for each level of [`Isa`].
//!
//! A kernel is a struct with a [`Kernel::run`] that is generic over [`Lanes`]; [`dispatch`] runs it with the vectors of
//! an [`Isa`]. The vector types' values (`Avx2`, `Avx512`, `Neon`) are proofs: only `dispatch` makes them, after the `Isa` has
//! shown what the machine has. Everything here treats each lane alike, so a result depends neither on the lane an
//! element sits in nor on its neighbours.

use crate::cpu::isa::{Isa, Level};

/// The widest vector of any level; row strides that are multiples of it suit all of them.
pub(crate) const MAX_LANES: usize = 16;

/// A computation written once for all vector widths.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;
    /// The computation; must be `#[inline(always)]`, so that it is compiled for the instructions it runs with.
    fn run<S: Lanes>(self, s: S) -> Self::Output;
}

/// Runs a kernel with the vectors of `isa`.
pub(crate) fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` of this level exists only where detection found these features.
        Level::Avx512 => unsafe { x86::run_avx512(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { x86::run_avx2(kernel) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Level::Neon => unsafe { neon::run_neon(kernel) },
        _ => kernel.run(Portable(())),
    }
}

/// Operations on vectors of `Self::N` lanes of `f32`.
pub(crate) trait Lanes: Copy {
    /// One vector.
    type V: Copy;
    /// Lanes in a vector, a divisor of [`MAX_LANES`].
    const N: usize;
    /// Rows that the multiplying kernels keep in registers at once, with two vectors each.
    const TILE_ROWS: usize;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::V;
    /// Reads `N` values.
    ///
    /// # Safety
    /// `N` values can be read at `from`.
    unsafe fn load_at(self, from: *const f32) -> Self::V;
    /// Writes `N` values.
    ///
    /// # Safety
    /// `N` values can be written at `to`.
    unsafe fn store_at(self, to: *mut f32, v: Self::V);
    /// Reads `N` half-precision values.
    ///
    /// # Safety
    /// `N` values can be read at `from`.
    unsafe fn load_half_at(self, from: *const u16) -> Self::V;
    /// Writes `N` values in half precision, rounded to nearest even.
    ///
    /// # Safety
    /// `N` values can be written at `to`.
    unsafe fn store_half_at(self, to: *mut u16, v: Self::V);
    /// Reads `N` bfloat16 values, the leading halves of as many `f32`.
    ///
    /// # Safety
    /// `N` values can be read at `from`.
    unsafe fn load_bf16_at(self, from: *const u16) -> Self::V;
    /// Writes `N` bfloat16 values, rounded to nearest even.
    ///
    /// # Safety
    /// `N` values can be written at `to`.
    unsafe fn store_bf16_at(self, to: *mut u16, v: Self::V);
    /// Reads `N` integers of 8 bits.
    ///
    /// # Safety
    /// `N` of them can be read at `from`.
    unsafe fn load_i8_at(self, from: *const i8) -> Self::V;
    /// Writes `N` integers of 8 bits: what stands before the point, the nearest there is for numbers outside. Anything for
    /// what is not a number or beyond 32 bits.
    ///
    /// # Safety
    /// `N` of them can be written at `to`.
    unsafe fn store_i8_at(self, to: *mut i8, v: Self::V);
    /// Asks for the cache line at `address`, which need not be readable.
    fn prefetch<T>(self, address: *const T);
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, in one rounding where the machine can.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger of each lane; `b` where one is not a number.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller of each lane; `b` where one is not a number.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// `2^a` for integers `a` in `-126..=127`.
    fn power_of_two(self, a: Self::V) -> Self::V;
    /// Exchanges lanes `2i` and `2i + 1`.
    fn swap_pairs(self, a: Self::V) -> Self::V;

    /// Reads the first `N` values of a slice.
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::V {
        assert!(from.len() >= Self::N);
        // SAFETY: just checked.
        unsafe { self.load_at(from.as_ptr()) }
    }

    /// Writes the first `N` values of a slice.
    #[inline(always)]
    fn store(self, to: &mut [f32], v: Self::V) {
        assert!(to.len() >= Self::N);
        // SAFETY: just checked.
        unsafe { self.store_at(to.as_mut_ptr(), v) }
    }

    /// Reads a slice of at most `N` values; the lanes beyond are 0.
    #[inline(always)]
    fn load_part(self, from: &[f32]) -> Self::V {
        if from.len() == Self::N {
            return self.load(from);
        }
        let mut padded = [0.0; MAX_LANES];
        padded[..from.len()].copy_from_slice(from);
        self.load(&padded)
    }

    /// Writes as many lanes as the slice is long, at most `N`.
    #[inline(always)]
    fn store_part(self, to: &mut [f32], v: Self::V) {
        if to.len() == Self::N {
            return self.store(to, v);
        }
        let mut padded = [0.0; MAX_LANES];
        self.store(&mut padded, v);
        to.copy_from_slice(&padded[..to.len()]);
    }

    /// Lane 0.
    #[inline(always)]
    fn first(self, v: Self::V) -> f32 {
        let mut lanes = [0.0; MAX_LANES];
        self.store(&mut lanes, v);
        lanes[0]
    }

    /// Sum of all lanes, by halves: lane `i` and `i + N/2` first.
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        self.fold(v, |a, b| a + b)
    }

    /// The largest lane.
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        self.fold(v, |a, b| if a > b { a } else { b })
    }

    /// Combines all lanes by halves.
    #[inline(always)]
    fn fold(self, v: Self::V, combine: impl Fn(f32, f32) -> f32) -> f32 {
        let mut lanes = [0.0; MAX_LANES];
        self.store(&mut lanes, v);
        let mut half = Self::N / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] = combine(lanes[i], lanes[i + half]);
            }
            half /= 2;
        }
        lanes[0]
    }

    /// `2^x`, relative error below 2e-7 within the range of normal numbers; beyond it, the range's ends.
    ///
    /// `2^x = 2^n * 2^r` with `n` the nearest integer and a polynomial for `2^r`, fitted for the least relative error
    /// on `-1/2..=1/2` with `p(0) = 1`.
    #[inline(always)]
    fn exp2(self, x: Self::V) -> Self::V {
        // `max` and `min` give their second operand when one is not a number, so such an `x` stays one.
        let x = self.min(self.splat(127.0), self.max(self.splat(-126.0), x));
        let n = self.round(x);
        let r = self.sub(x, n);
        // Coefficients of r^5 down to 1.
        let bits = [
            0x3aad_dd0b_u32,
            0x3c1e_7544,
            0x3d63_5ba9,
            0x3e75_fcde,
            0x3f31_7215,
            0x3f80_0000,
        ];
        let mut p = self.splat(f32::from_bits(bits[0]));
        for coefficient in bits[1..].iter().map(|&bits| f32::from_bits(bits)) {
            p = self.mul_add(p, r, self.splat(coefficient));
        }
        self.mul(p, self.power_of_two(n))
    }
}

/// Eight lanes in plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable(());

/// Applies `f` to each lane.
#[inline(always)]
fn map(a: [f32; 8], f: impl Fn(f32) -> f32) -> [f32; 8] {
    a.map(f)
}

/// Applies `f` to each pair of lanes.
#[inline(always)]
fn zip(a: [f32; 8], b: [f32; 8], f: impl Fn(f32, f32) -> f32) -> [f32; 8] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Lanes for Portable {
    type V = [f32; 8];
    const N: usize = 8;
    const TILE_ROWS: usize = 2;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> Self::V {
        // SAFETY: the caller's promise; an array of `f32` is aligned as one of them.
        unsafe { from.cast::<[f32; 8]>().read() }
    }
    #[inline(always)]
    unsafe fn store_at(self, to: *mut f32, v: Self::V) {
        // SAFETY: as above.
        unsafe { to.cast::<[f32; 8]>().write(v) }
    }
    #[inline(always)]
    unsafe fn load_half_at(self, from: *const u16) -> Self::V {
        // SAFETY: as above.
        let bits = unsafe { from.cast::<[u16; 8]>().read() };
        bits.map(|bits| half::f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    unsafe fn store_half_at(self, to: *mut u16, v: Self::V) {
        // SAFETY: as above.
        unsafe {
            to.cast::<[u16; 8]>()
                .write(v.map(|x| half::f16::from_f32(x).to_bits()));
        }
    }
    #[inline(always)]
    unsafe fn load_bf16_at(self, from: *const u16) -> Self::V {
        // SAFETY: as above.
        let bits = unsafe { from.cast::<[u16; 8]>().read() };
        bits.map(|bits| half::bf16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    unsafe fn store_bf16_at(self, to: *mut u16, v: Self::V) {
        // SAFETY: as above.
        unsafe {
            to.cast::<[u16; 8]>()
                .write(v.map(|x| half::bf16::from_f32(x).to_bits()));
        }
    }
    #[inline(always)]
    unsafe fn load_i8_at(self, from: *const i8) -> Self::V {
        // SAFETY: as above.
        unsafe { from.cast::<[i8; 8]>().read() }.map(f32::from)
    }
    #[inline(always)]
    unsafe fn store_i8_at(self, to: *mut i8, v: Self::V) {
        // SAFETY: as above.
        unsafe { to.cast::<[i8; 8]>().write(v.map(|x| x as i8)) }
    }
    #[inline(always)]
    fn prefetch<T>(self, _: *const T) {}
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Two roundings: a fused multiply-add without the instruction is a library call.
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        // Adding 1.5 * 2^23 leaves no bits for a fraction; the values here are far below 2^22.
        const MAGIC: f32 = 12_582_912.0;
        map(a, |a| (a + MAGIC) - MAGIC)
    }
    #[inline(always)]
    fn power_of_two(self, a: Self::V) -> Self::V {
        map(a, |a| f32::from_bits(((a as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    fn swap_pairs(self, a: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i ^ 1])
    }
}

/// Methods that are one expression of intrinsics.
macro_rules! lanes {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: $type),*) -> $result {
                // SAFETY: `self` proves that the machine has the instructions.
                unsafe { $body }
            }
        )*
    };
}

/// Methods that touch memory.
macro_rules! lanes_memory {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? = $body:expr;)*) => {
        $(
            #[inline(always)]
            unsafe fn $name(self, $($arg: $type),*) $(-> $result)? {
                // SAFETY: `self` proves that the machine has the instructions; the memory is the caller's promise.
                unsafe { $body }
            }
        )*
    };
}

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;
