// Eight fp32 values in a 256-bit register: AVX2 with FMA.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace vla::VLA_ISA {

struct Vec {
  static constexpr int kWidth = 8;
  __m256 v;
};
using Mask = Vec;

constexpr const char* kIsaName = "avx2";
#ifdef VLA_TILE_ROWS  // tiles of other sizes are compiled to compare them
constexpr int kTileRows = VLA_TILE_ROWS;
constexpr int kTileVecs = VLA_TILE_VECS;
#else
constexpr int kTileRows = 6;
constexpr int kTileVecs = 2;
#endif
constexpr int kRowTileCols = 3;  // of weights kept row by row; rows are four
constexpr int kPeakAccumulators = 12;

VLA_INLINE Vec zero() { return {_mm256_setzero_ps()}; }
VLA_INLINE Vec splat(float x) { return {_mm256_set1_ps(x)}; }
VLA_INLINE Vec broadcast(const float* p) { return {_mm256_broadcast_ss(p)}; }
VLA_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
VLA_INLINE Vec load(const Bf16* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
}
VLA_INLINE Vec load(const Half* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
VLA_INLINE Vec load(const int8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}
VLA_INLINE void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }

// All bits set in the first n lanes (0 <= n <= 8).
VLA_INLINE __m256i lanes_below(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
// The first n values; the rest are zero and their memory is not touched.
VLA_INLINE Vec load_first(const float* p, int64_t n) { return {_mm256_maskload_ps(p, lanes_below(n))}; }
VLA_INLINE void store_first(float* p, Vec a, int64_t n) { _mm256_maskstore_ps(p, lanes_below(n), a.v); }
VLA_INLINE Vec keep_first(Vec a, int64_t n) { return {_mm256_and_ps(a.v, _mm256_castsi256_ps(lanes_below(n)))}; }

VLA_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
VLA_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
VLA_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
VLA_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
VLA_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
// sum += a * b, fused. In assembly because only this form of the instruction leaves the sum where it is: of a
// tile's many sums GCC otherwise lets some change registers at every step, until it has to spill one.
VLA_INLINE void multiply_add(Vec& sum, Vec a, Vec b) {
  __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum.v) : "x"(a.v), "x"(b.v));
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
  __m256i v;
};
VLA_INLINE Nibbles load_nibbles(const uint8_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
// The I-th of each, the lowest first.
template <int I>
VLA_INLINE Vec nibble(Nibbles a) {
  const __m256i shifted = I == 0 ? a.v : _mm256_srli_epi32(a.v, 4 * I);
  return {_mm256_cvtepi32_ps(I == 7 ? shifted : _mm256_and_si256(shifted, _mm256_set1_epi32(15)))};
}

// max and min return b where either is NaN.
VLA_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
VLA_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
VLA_INLINE Vec abs(Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
// The magnitude of a, which is not negative, with the sign of b.
VLA_INLINE Vec with_sign_of(Vec a, Vec b) {
  return {_mm256_or_ps(a.v, _mm256_and_ps(_mm256_set1_ps(-0.0f), b.v))};
}
VLA_INLINE Mask less(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
VLA_INLINE Vec select(Mask m, Vec yes, Vec no) { return {_mm256_blendv_ps(no.v, yes.v, m.v)}; }
VLA_INLINE Vec round_to_even(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// 2^n for integral n in [-126, 127], and zero for -127.
VLA_INLINE Vec power_of_two(Vec n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(biased, 23))};
}
// The float whose exponent field is the lowest eight bits of a: 2^(them - 127), and zero for zero.
VLA_INLINE Vec exponent_of_lowest_bits(Vec a) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.v), 23))};
}
// a times 2^n, where n is added to a's exponent field: the lowest bits of `shifted` as a number of 2^-kFraction.
template <int kFraction>
VLA_INLINE Vec times_power_of_lowest_bits(Vec a, Vec shifted) {
  const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(shifted.v), 23 - kFraction);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.v), power))};
}
constexpr int kTableBits = 0;  // of a table to look values up in, which there is not
// The bits of `seen`, and those in which a and b differ.
VLA_INLINE Vec differing_bits(Vec seen, Vec a, Vec b) { return {_mm256_or_ps(seen.v, _mm256_xor_ps(a.v, b.v))}; }
// Of lanes with other bits than the lowest kBits.
template <int kBits>
VLA_INLINE Mask beyond_bits(Vec a) {
  const __m256i others = _mm256_srli_epi32(_mm256_castps_si256(a.v), kBits);
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(others, _mm256_setzero_si256()))};
}
VLA_INLINE float first_lane(Vec a) { return _mm256_cvtss_f32(a.v); }
VLA_INLINE float sum(Vec a) {
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
// to[i] = the sum of the i-th.
VLA_INLINE void sums_of_four(Vec a, Vec b, Vec c, Vec d, float* to) {
  const __m256 abcd = _mm256_hadd_ps(_mm256_hadd_ps(a.v, b.v), _mm256_hadd_ps(c.v, d.v));
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
}
VLA_INLINE float max_lane(Vec a) {
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

// dst[j][i] = row(i)[j] for a square block of kWidth.
template <typename Row>
VLA_INLINE void transpose(Row row, float* dst, int64_t dst_ld) {
  const auto pair = [&](int i) {  // rows i and i + 4, low and high halves swapped into place
    const __m256 a = row(i).v, b = row(i + 4).v;
    struct Halves {
      __m256 low, high;
    };
    return Halves{_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31)};
  };
  const auto r0 = pair(0), r1 = pair(1), r2 = pair(2), r3 = pair(3);
  const auto four = [&](__m256 a, __m256 b, __m256 c, __m256 d, float* out) {
    const __m256 ab_low = _mm256_unpacklo_ps(a, b), ab_high = _mm256_unpackhi_ps(a, b);
    const __m256 cd_low = _mm256_unpacklo_ps(c, d), cd_high = _mm256_unpackhi_ps(c, d);
    _mm256_storeu_ps(out, _mm256_shuffle_ps(ab_low, cd_low, 0x44));
    _mm256_storeu_ps(out + dst_ld, _mm256_shuffle_ps(ab_low, cd_low, 0xee));
    _mm256_storeu_ps(out + 2 * dst_ld, _mm256_shuffle_ps(ab_high, cd_high, 0x44));
    _mm256_storeu_ps(out + 3 * dst_ld, _mm256_shuffle_ps(ab_high, cd_high, 0xee));
  };
  four(r0.low, r1.low, r2.low, r3.low, dst);
  four(r0.high, r1.high, r2.high, r3.high, dst + 4 * dst_ld);
}

}  // namespace vla::VLA_ISA
