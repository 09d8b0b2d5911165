//! Vector kernels. The only place besides the thread pool where `unsafe` is.
#![expect(unsafe_code, reason = "vector intrinsics and raw pointers")]

pub(crate) mod attention;
pub(crate) mod elementwise;
pub(crate) mod lanes;
pub(crate) mod matmul;
pub(crate) mod shared_rows;
#[cfg(target_arch = "x86_64")]
mod tiles;

/// Whether AMX tiles can be used; asks the system for them.
pub(crate) fn enable_tiles() -> bool {
    #[cfg(target_arch = "x86_64")]
    return tiles::enable();
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}
