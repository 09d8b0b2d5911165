//! [`Lanes`] in NEON. Every 64-bit Arm processor that runs an operating system has it, but it is asked for all the same.
//!
//! Checked under emulation; unmeasured.

use super::{Kernel, Lanes};
use std::arch::aarch64::*;
use std::arch::asm;

/// Four lanes; its existence proves NEON.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

/// Compiles and runs a kernel with NEON.
#[target_feature(enable = "neon")]
pub(super) fn run_neon<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Neon(()))
}

impl Lanes for Neon {
    type V = float32x4_t;
    const N: usize = 4;
    const TILE_ROWS: usize = 12;

    #[inline(always)]
    fn prefetch<T>(self, address: *const T) {
        // SAFETY: a hint that never faults.
        unsafe {
            asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
        }
    }
    lanes_memory! {
        load_at(from: *const f32) -> float32x4_t = vld1q_f32(from);
        store_at(to: *mut f32, v: float32x4_t) = vst1q_f32(to, v);
        load_half_at(from: *const u16) -> float32x4_t = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
        store_half_at(to: *mut u16, v: float32x4_t) = vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(v)));
        load_bf16_at(from: *const u16) -> float32x4_t =
            vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(vld1_u16(from))));
        store_bf16_at(to: *mut u16, v: float32x4_t) = {
            let bits = vreinterpretq_u32_f32(v);
            // Just below a half, and the last bit that is kept: ties go to even.
            let last = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
            let rounded = vaddq_u32(bits, vaddq_u32(last, vdupq_n_u32(0x7fff)));
            // What is no number could become one.
            let quiet = vorrq_u32(bits, vdupq_n_u32(0x40_0000));
            let all = vbslq_u32(vceqq_f32(v, v), rounded, quiet);
            vst1_u16(to, vshrn_n_u32::<16>(all));
        };
        load_i8_at(from: *const i8) -> float32x4_t = {
            let bytes = u32::from_le_bytes(from.cast::<[u8; 4]>().read());
            let words = vmovl_s8(vcreate_s8(u64::from(bytes)));
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(words)))
        };
        store_i8_at(to: *mut i8, v: float32x4_t) = {
            let words = vqmovn_s32(vcvtq_s32_f32(v));
            let bytes = vqmovn_s16(vcombine_s16(words, words));
            let all = vget_lane_u32::<0>(vreinterpret_u32_s8(bytes));
            to.cast::<[u8; 4]>().write(all.to_le_bytes());
        };
    }
    lanes! {
        splat(x: f32) -> float32x4_t = vdupq_n_f32(x);
        add(a: float32x4_t, b: float32x4_t) -> float32x4_t = vaddq_f32(a, b);
        sub(a: float32x4_t, b: float32x4_t) -> float32x4_t = vsubq_f32(a, b);
        mul(a: float32x4_t, b: float32x4_t) -> float32x4_t = vmulq_f32(a, b);
        div(a: float32x4_t, b: float32x4_t) -> float32x4_t = vdivq_f32(a, b);
        mul_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
        // The instructions for these give no number where one operand is none.
        max(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcgtq_f32(a, b), a, b);
        min(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcltq_f32(a, b), a, b);
        round(a: float32x4_t) -> float32x4_t = vrndnq_f32(a);
        power_of_two(a: float32x4_t) -> float32x4_t = vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(
            vcvtnq_s32_f32(a),
            vdupq_n_s32(127),
        )));
        swap_pairs(a: float32x4_t) -> float32x4_t = vrev64q_f32(a);
    }
}
