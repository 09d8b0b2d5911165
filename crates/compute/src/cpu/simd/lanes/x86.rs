//! [`Lanes`] in AVX2 and AVX-512.

use super::{Kernel, Lanes};
use std::arch::x86_64::*;

/// Eight lanes; its existence proves AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// Sixteen lanes; its existence proves AVX-512 F, BW, DQ and VL besides.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

/// Compiles and runs a kernel with AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// Compiles and runs a kernel with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

impl Lanes for Avx2 {
    type V = __m256;
    const N: usize = 8;
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    fn prefetch<T>(self, address: *const T) {
        // SAFETY: a hint that never faults; every x86-64 machine has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    lanes_memory! {
        load_at(from: *const f32) -> __m256 = _mm256_loadu_ps(from);
        store_at(to: *mut f32, v: __m256) = _mm256_storeu_ps(to, v);
        load_half_at(from: *const u16) -> __m256 = _mm256_cvtph_ps(_mm_loadu_si128(from.cast()));
        store_half_at(to: *mut u16, v: __m256) =
            _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
        load_bf16_at(from: *const u16) -> __m256 = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(
            _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())),
        ));
        store_bf16_at(to: *mut u16, v: __m256) = {
            let bits = _mm256_castps_si256(v);
            // Just below a half, and the last bit that is kept: ties go to even.
            let last = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let half = _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff));
            let rounded = _mm256_castsi256_ps(_mm256_add_epi32(bits, half));
            // What is no number could become one.
            let quiet = _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000)));
            let all = _mm256_blendv_ps(rounded, quiet, _mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
            let upper = _mm256_srli_epi32::<16>(_mm256_castps_si256(all));
            let (first, last) = (_mm256_castsi256_si128(upper), _mm256_extracti128_si256::<1>(upper));
            _mm_storeu_si128(to.cast(), _mm_packus_epi32(first, last));
        };
        load_i8_at(from: *const i8) -> __m256 =
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast())));
        store_i8_at(to: *mut i8, v: __m256) = {
            let whole = _mm256_cvttps_epi32(v);
            let (first, last) = (_mm256_castsi256_si128(whole), _mm256_extracti128_si256::<1>(whole));
            let words = _mm_packs_epi32(first, last);
            _mm_storel_epi64(to.cast(), _mm_packs_epi16(words, words));
        };
    }
    lanes! {
        splat(x: f32) -> __m256 = _mm256_set1_ps(x);
        add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
        mul_add(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
        round(a: __m256) -> __m256 = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        power_of_two(a: __m256) -> __m256 = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(
            _mm256_cvtps_epi32(a),
            _mm256_set1_epi32(127),
        )));
        swap_pairs(a: __m256) -> __m256 = _mm256_permute_ps::<0b10_11_00_01>(a);
    }
}

impl Lanes for Avx512 {
    type V = __m512;
    const N: usize = 16;
    const TILE_ROWS: usize = 12;

    #[inline(always)]
    fn prefetch<T>(self, address: *const T) {
        // SAFETY: a hint that never faults; every x86-64 machine has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    lanes_memory! {
        load_at(from: *const f32) -> __m512 = _mm512_loadu_ps(from);
        store_at(to: *mut f32, v: __m512) = _mm512_storeu_ps(to, v);
        load_half_at(from: *const u16) -> __m512 = _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()));
        store_half_at(to: *mut u16, v: __m512) =
            _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
        load_bf16_at(from: *const u16) -> __m512 = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(
            _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())),
        ));
        store_bf16_at(to: *mut u16, v: __m512) = {
            let bits = _mm512_castps_si512(v);
            let last = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff));
            let rounded = _mm512_add_epi32(bits, half);
            let unordered = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
            let all = _mm512_mask_or_epi32(rounded, unordered, bits, _mm512_set1_epi32(0x40_0000));
            let upper = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(all));
            _mm256_storeu_si256(to.cast(), upper);
        };
        load_i8_at(from: *const i8) -> __m512 =
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())));
        store_i8_at(to: *mut i8, v: __m512) =
            _mm_storeu_si128(to.cast(), _mm512_cvtsepi32_epi8(_mm512_cvttps_epi32(v)));
    }
    lanes! {
        splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        mul_add(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        round(a: __m512) -> __m512 =
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        power_of_two(a: __m512) -> __m512 = _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(
            _mm512_cvtps_epi32(a),
            _mm512_set1_epi32(127),
        )));
        swap_pairs(a: __m512) -> __m512 = _mm512_permute_ps::<0b10_11_00_01>(a);
    }
}
