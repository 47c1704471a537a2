// Sixteen fp32 values in a 512-bit register: AVX-512 F, DQ, BW and VL.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace vla::VLA_ISA {

struct Vec {
  static constexpr int kWidth = 16;
  __m512 v;
};
struct Mask {
  __mmask16 m;
};

constexpr const char* kIsaName = "avx512";
// 10 to 14 rows are equally fast; with 14, which leaves no register over, clang 14 spills one.
#ifdef VLA_TILE_ROWS  // tiles of other sizes are compiled to compare them
constexpr int kTileRows = VLA_TILE_ROWS;
constexpr int kTileVecs = VLA_TILE_VECS;
#else
constexpr int kTileRows = 13;
constexpr int kTileVecs = 2;
#endif
constexpr int kRowTileCols = 6;  // of weights kept row by row; rows are four
constexpr int kPeakAccumulators = 24;

VLA_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
VLA_INLINE Vec splat(float x) { return {_mm512_set1_ps(x)}; }
VLA_INLINE Vec broadcast(const float* p) { return {_mm512_set1_ps(*p)}; }
VLA_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
VLA_INLINE Vec load(const Bf16* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
VLA_INLINE Vec load(const Half* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
VLA_INLINE Vec load(const int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
VLA_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }

// The first n lanes (0 <= n <= 16).
VLA_INLINE __mmask16 lanes_below(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
// The first n values; the rest are zero and their memory is not touched.
VLA_INLINE Vec load_first(const float* p, int64_t n) { return {_mm512_maskz_loadu_ps(lanes_below(n), p)}; }
VLA_INLINE void store_first(float* p, Vec a, int64_t n) {
  if (n > 8) return _mm512_mask_storeu_ps(p, lanes_below(n), a.v);
  _mm256_mask_storeu_ps(p, static_cast<__mmask8>(lanes_below(n)), _mm512_castps512_ps256(a.v));
}
VLA_INLINE Vec keep_first(Vec a, int64_t n) { return {_mm512_maskz_mov_ps(lanes_below(n), a.v)}; }

VLA_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
VLA_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
VLA_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
VLA_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
VLA_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// sum += a * b, fused. In assembly because only this form of the instruction leaves the sum where it is: of a
// tile's many sums GCC otherwise lets some change registers at every step, until it has to spill one.
VLA_INLINE void multiply_add(Vec& sum, Vec a, Vec b) {
  __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum.v) : "v"(a.v), "v"(b.v));
}

// Four adjacent values of a row, of which a product takes one at a time: broadcast from memory when taken.
struct Quad {
  const float* p;
};
VLA_INLINE Quad load_quad(const float* p) { return {p}; }
template <int K>
VLA_INLINE Vec take(Quad q) {
  return broadcast(q.p + K);
}

// Eight values of four bits in each lane.
struct Nibbles {
  __m512i v;
};
VLA_INLINE Nibbles load_nibbles(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
// The I-th of each, the lowest first. A permutation looks at no more than four bits of where it takes values from.
template <int I>
VLA_INLINE Vec nibble(Nibbles a) {
  const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return {_mm512_permutexvar_ps(I == 0 ? a.v : _mm512_srli_epi32(a.v, 4 * I), values)};
}

// max and min return b where either is NaN.
VLA_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
VLA_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
VLA_INLINE Vec abs(Vec a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
// The magnitude of a, which is not negative, with the sign of b.
VLA_INLINE Vec with_sign_of(Vec a, Vec b) {
  return {_mm512_or_ps(a.v, _mm512_and_ps(_mm512_set1_ps(-0.0f), b.v))};
}
VLA_INLINE Mask less(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
VLA_INLINE Vec select(Mask m, Vec yes, Vec no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }
VLA_INLINE Vec round_to_even(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// 2^n for integral n in [-126, 127], and zero for -127.
VLA_INLINE Vec power_of_two(Vec n) {
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}
// The float whose exponent field is the lowest eight bits of a: 2^(them - 127), and zero for zero.
VLA_INLINE Vec exponent_of_lowest_bits(Vec a) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a.v), 23))};
}
// a times 2^n, where n is added to a's exponent field: the lowest bits of `shifted` as a number of 2^-kFraction.
template <int kFraction>
VLA_INLINE Vec times_power_of_lowest_bits(Vec a, Vec shifted) {
  const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23 - kFraction);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), power))};
}
// The values, given as their bits, of an aligned table of 2^kTableBits that the lowest bits of `at` name.
constexpr int kTableBits = 4;
VLA_INLINE Vec look_up(const uint32_t* table, Vec at) {
  return {_mm512_castsi512_ps(_mm512_permutexvar_epi32(_mm512_castps_si512(at.v), _mm512_load_si512(table)))};
}
// The bits of `seen`, and those in which a and b differ.
VLA_INLINE Vec differing_bits(Vec seen, Vec a, Vec b) {
  constexpr int kSeenOrDiffering = 0xf6;
  return {_mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(seen.v), _mm512_castps_si512(a.v),
                                                        _mm512_castps_si512(b.v), kSeenOrDiffering))};
}
// Of lanes with other bits than the lowest kBits.
template <int kBits>
VLA_INLINE Mask beyond_bits(Vec a) {
  return {_mm512_test_epi32_mask(_mm512_castps_si512(a.v), _mm512_set1_epi32(-(1 << kBits)))};
}
VLA_INLINE float first_lane(Vec a) { return _mm512_cvtss_f32(a.v); }
VLA_INLINE float sum(Vec a) { return _mm512_reduce_add_ps(a.v); }
// to[i] = the sum of the i-th.
VLA_INLINE void sums_of_four(Vec a, Vec b, Vec c, Vec d, float* to) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a.v, b.v), _mm512_unpackhi_ps(a.v, b.v));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c.v, d.v), _mm512_unpackhi_ps(c.v, d.v));
  const __m512 abcd = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}
VLA_INLINE float max_lane(Vec a) { return _mm512_reduce_max_ps(a.v); }

// dst[j][i] = row(i)[j] for a square block of kWidth.
template <typename Row>
VLA_INLINE void transpose(Row row, float* dst, int64_t dst_ld) {
  struct Four {
    __m512 c0, c1, c2, c3;  // lane q of c_j holds column 4 q + j of four rows
  };
  const auto four_rows = [&](int first) {
    const __m512 a = row(first).v, b = row(first + 1).v, c = row(first + 2).v, d = row(first + 3).v;
    const __m512 ab_low = _mm512_unpacklo_ps(a, b), ab_high = _mm512_unpackhi_ps(a, b);
    const __m512 cd_low = _mm512_unpacklo_ps(c, d), cd_high = _mm512_unpackhi_ps(c, d);
    return Four{_mm512_shuffle_ps(ab_low, cd_low, 0x44), _mm512_shuffle_ps(ab_low, cd_low, 0xee),
                _mm512_shuffle_ps(ab_high, cd_high, 0x44), _mm512_shuffle_ps(ab_high, cd_high, 0xee)};
  };
  const auto lanes_to_rows = [&](__m512 a, __m512 b, __m512 c, __m512 d, float* out) {
    const __m512 ab_low = _mm512_shuffle_f32x4(a, b, 0x44), ab_high = _mm512_shuffle_f32x4(a, b, 0xee);
    const __m512 cd_low = _mm512_shuffle_f32x4(c, d, 0x44), cd_high = _mm512_shuffle_f32x4(c, d, 0xee);
    _mm512_storeu_ps(out, _mm512_shuffle_f32x4(ab_low, cd_low, 0x88));
    _mm512_storeu_ps(out + 4 * dst_ld, _mm512_shuffle_f32x4(ab_low, cd_low, 0xdd));
    _mm512_storeu_ps(out + 8 * dst_ld, _mm512_shuffle_f32x4(ab_high, cd_high, 0x88));
    _mm512_storeu_ps(out + 12 * dst_ld, _mm512_shuffle_f32x4(ab_high, cd_high, 0xdd));
  };
  const Four a = four_rows(0), b = four_rows(4), c = four_rows(8), d = four_rows(12);
  lanes_to_rows(a.c0, b.c0, c.c0, d.c0, dst);
  lanes_to_rows(a.c1, b.c1, c.c1, d.c1, dst + dst_ld);
  lanes_to_rows(a.c2, b.c2, c.c2, d.c2, dst + 2 * dst_ld);
  lanes_to_rows(a.c3, b.c3, c.c3, d.c3, dst + 3 * dst_ld);
}

}  // namespace vla::VLA_ISA
