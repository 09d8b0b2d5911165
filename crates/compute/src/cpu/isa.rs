//! Tokens that prove which vector instructions this machine has.
//!
//! A kernel that needs AVX-512 takes the level from an [`Isa`]; an `Isa` above the portable level can only be made by
//! asking the processor. That proof is what makes the kernels' calls sound.

use super::simd::enable_tiles;
use std::fmt;

/// The vector instructions a backend may use; made only by run-time detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa {
    level: Level,
    amx: bool,
    dot: bool,
}

/// A step of the ladder of instruction sets; of one architecture, a higher one includes the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every target of the compiler has.
    Portable,
    /// NEON of 64-bit Arm.
    Neon,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
}

impl Isa {
    /// The best this machine has.
    #[must_use]
    pub fn detect() -> Self {
        Self::amx()
            .or_else(Self::avx512)
            .or_else(Self::avx2)
            .or_else(Self::neon_dot)
            .or_else(Self::neon)
            .unwrap_or_else(Self::portable)
    }

    /// No assumption about the machine.
    #[must_use]
    pub fn portable() -> Self {
        Self::plain(Level::Portable)
    }

    /// AVX2, FMA and F16C, when the machine has them.
    #[must_use]
    pub fn avx2() -> Option<Self> {
        has_avx2().then_some(Self::plain(Level::Avx2))
    }

    /// AVX-512 with VNNI, without matrix tiles, when the machine has it.
    #[must_use]
    pub fn avx512() -> Option<Self> {
        (has_avx2() && has_avx512()).then_some(Self::plain(Level::Avx512))
    }

    /// AVX-512 with VNNI and AMX tiles, when the machine has them and the system lets this process use them.
    #[must_use]
    pub fn amx() -> Option<Self> {
        let avx512 = Self::avx512()?;
        enable_tiles().then_some(Self {
            amx: true,
            ..avx512
        })
    }

    /// NEON without `sdot`, when the machine has it.
    #[must_use]
    pub fn neon() -> Option<Self> {
        has_neon().then_some(Self::plain(Level::Neon))
    }

    /// NEON with `sdot`, when the machine has it.
    #[must_use]
    pub fn neon_dot() -> Option<Self> {
        let neon = Self::neon()?;
        has_dot().then_some(Self { dot: true, ..neon })
    }

    const fn plain(level: Level) -> Self {
        Self {
            level,
            amx: false,
            dot: false,
        }
    }

    /// Every instruction set this machine can run, worst first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        [
            Some(Self::portable()),
            Self::neon(),
            Self::neon_dot(),
            Self::avx2(),
            Self::avx512(),
            Self::amx(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The step of the ladder.
    #[must_use]
    pub fn level(self) -> Level {
        self.level
    }

    /// Whether AMX tiles may be used.
    #[must_use]
    pub fn has_tiles(self) -> bool {
        self.amx
    }

    /// Whether NEON's `sdot` may be used.
    #[must_use]
    pub fn has_dot(self) -> bool {
        self.dot
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Portable => "portable",
            Level::Neon if self.dot => "neon+dotprod",
            Level::Neon => "neon",
            Level::Avx2 => "avx2",
            Level::Avx512 if self.amx => "avx512-vnni+amx",
            Level::Avx512 => "avx512-vnni",
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

#[cfg(target_arch = "aarch64")]
fn has_neon() -> bool {
    std::arch::is_aarch64_feature_detected!("neon")
}

#[cfg(target_arch = "aarch64")]
fn has_dot() -> bool {
    std::arch::is_aarch64_feature_detected!("dotprod")
}

#[cfg(not(target_arch = "aarch64"))]
fn has_neon() -> bool {
    false
}

#[cfg(not(target_arch = "aarch64"))]
fn has_dot() -> bool {
    false
}
