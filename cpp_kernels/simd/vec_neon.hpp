// Four fp32 values in a 128-bit register: AArch64 Advanced SIMD.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace vla::VLA_ISA {

struct Vec {
  static constexpr int kWidth = 4;
  float32x4_t v;
};
struct Mask {
  uint32x4_t m;
};

constexpr const char* kIsaName = "neon";
#ifdef VLA_TILE_ROWS  // tiles of other sizes are compiled to compare them
constexpr int kTileRows = VLA_TILE_ROWS;
constexpr int kTileVecs = VLA_TILE_VECS;
#else
constexpr int kTileRows = 4;
constexpr int kTileVecs = 4;
#endif
constexpr int kRowTileCols = 6;  // of weights kept row by row; rows are four
constexpr int kPeakAccumulators = 24;

VLA_INLINE Vec zero() { return {vdupq_n_f32(0.0f)}; }
VLA_INLINE Vec splat(float x) { return {vdupq_n_f32(x)}; }
VLA_INLINE Vec broadcast(const float* p) { return {vdupq_n_f32(*p)}; }
VLA_INLINE Vec load(const float* p) { return {vld1q_f32(p)}; }
VLA_INLINE Vec load(const Bf16* p) {
  return {vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p)), 16))};
}
VLA_INLINE Vec load(const Half* p) {
  return {vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p))))};
}
VLA_INLINE Vec load(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  const int8x8_t bytes = vreinterpret_s8_s32(vdup_n_s32(four));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))};
}
VLA_INLINE void store(float* p, Vec a) { vst1q_f32(p, a.v); }

// All bits set in the first n lanes (0 <= n <= 4).
VLA_INLINE uint32x4_t lanes_below(int64_t n) {
  const uint32_t index[4] = {0, 1, 2, 3};
  return vcltq_u32(vld1q_u32(index), vdupq_n_u32(static_cast<uint32_t>(n)));
}
// The first n values; the rest are zero and their memory is not touched.
VLA_INLINE Vec load_first(const float* p, int64_t n) {
  float lanes[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return {vld1q_f32(lanes)};
}
VLA_INLINE void store_first(float* p, Vec a, int64_t n) {
  float lanes[4];
  vst1q_f32(lanes, a.v);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}
VLA_INLINE Vec keep_first(Vec a, int64_t n) {
  return {vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a.v), lanes_below(n)))};
}

VLA_INLINE Vec operator+(Vec a, Vec b) { return {vaddq_f32(a.v, b.v)}; }
VLA_INLINE Vec operator-(Vec a, Vec b) { return {vsubq_f32(a.v, b.v)}; }
VLA_INLINE Vec operator*(Vec a, Vec b) { return {vmulq_f32(a.v, b.v)}; }
VLA_INLINE Vec operator/(Vec a, Vec b) { return {vdivq_f32(a.v, b.v)}; }
VLA_INLINE Vec fma(Vec a, Vec b, Vec c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
// sum += a * b.
VLA_INLINE void multiply_add(Vec& sum, Vec a, Vec b) { sum = fma(a, b, sum); }

// Four adjacent values of a row, of which a product takes one at a time: a lane of one register.
struct Quad {
  float32x4_t v;
};
template <int K>
struct Lane {
  float32x4_t v;
};
VLA_INLINE Quad load_quad(const float* p) { return {vld1q_f32(p)}; }
template <int K>
VLA_INLINE Lane<K> take(Quad q) {
  return {q.v};
}
template <int K>
VLA_INLINE void multiply_add(Vec& sum, Lane<K> a, Vec b) {
  sum.v = vfmaq_laneq_f32(sum.v, b.v, a.v, K);
}

// Eight values of four bits in each lane.
struct Nibbles {
  uint32x4_t v;
};
VLA_INLINE Nibbles load_nibbles(const uint8_t* p) { return {vreinterpretq_u32_u8(vld1q_u8(p))}; }
// The I-th of each, the lowest first.
template <int I>
VLA_INLINE Vec nibble(Nibbles a) {
  if constexpr (I == 0) return {vcvtq_f32_u32(vandq_u32(a.v, vdupq_n_u32(15)))};
  if constexpr (I == 7) return {vcvtq_f32_u32(vshrq_n_u32(a.v, 28))};
  if constexpr (0 < I && I < 7) return {vcvtq_f32_u32(vandq_u32(vshrq_n_u32(a.v, 4 * I), vdupq_n_u32(15)))};
}

// max and min return NaN where either is NaN (elsewhere: b, which callers make the value that may be NaN).
VLA_INLINE Vec max(Vec a, Vec b) { return {vmaxq_f32(a.v, b.v)}; }
VLA_INLINE Vec min(Vec a, Vec b) { return {vminq_f32(a.v, b.v)}; }
VLA_INLINE Vec abs(Vec a) { return {vabsq_f32(a.v)}; }
// The magnitude of a, which is not negative, with the sign of b.
VLA_INLINE Vec with_sign_of(Vec a, Vec b) { return {vbslq_f32(vdupq_n_u32(0x80000000u), b.v, a.v)}; }
VLA_INLINE Mask less(Vec a, Vec b) { return {vcltq_f32(a.v, b.v)}; }
VLA_INLINE Vec select(Mask m, Vec yes, Vec no) { return {vbslq_f32(m.m, yes.v, no.v)}; }
VLA_INLINE Vec round_to_even(Vec a) { return {vrndnq_f32(a.v)}; }
// 2^n for integral n in [-126, 127], and zero for -127.
VLA_INLINE Vec power_of_two(Vec n) {
  const int32x4_t biased = vaddq_s32(vcvtq_s32_f32(n.v), vdupq_n_s32(127));
  return {vreinterpretq_f32_s32(vshlq_n_s32(biased, 23))};
}
// The float whose exponent field is the lowest eight bits of a: 2^(them - 127), and zero for zero.
VLA_INLINE Vec exponent_of_lowest_bits(Vec a) {
  return {vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(a.v), 23))};
}
// a times 2^n, where n is added to a's exponent field: the lowest bits of `shifted` as a number of 2^-kFraction.
template <int kFraction>
VLA_INLINE Vec times_power_of_lowest_bits(Vec a, Vec shifted) {
  const uint32x4_t power = vshlq_n_u32(vreinterpretq_u32_f32(shifted.v), 23 - kFraction);
  return {vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(a.v), power))};
}
constexpr int kTableBits = 0;  // of a table to look values up in, which there is not
// The bits of `seen`, and those in which a and b differ.
VLA_INLINE Vec differing_bits(Vec seen, Vec a, Vec b) {
  const uint32x4_t differing = veorq_u32(vreinterpretq_u32_f32(a.v), vreinterpretq_u32_f32(b.v));
  return {vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(seen.v), differing))};
}
// Of lanes with other bits than the lowest kBits.
template <int kBits>
VLA_INLINE Mask beyond_bits(Vec a) {
  return {vtstq_u32(vreinterpretq_u32_f32(a.v), vdupq_n_u32(~0u << kBits))};
}
VLA_INLINE float first_lane(Vec a) { return vgetq_lane_f32(a.v, 0); }
VLA_INLINE float sum(Vec a) { return vaddvq_f32(a.v); }
// to[i] = the sum of the i-th.
VLA_INLINE void sums_of_four(Vec a, Vec b, Vec c, Vec d, float* to) {
  vst1q_f32(to, vpaddq_f32(vpaddq_f32(a.v, b.v), vpaddq_f32(c.v, d.v)));
}
VLA_INLINE float max_lane(Vec a) { return vmaxvq_f32(a.v); }

// dst[j][i] = row(i)[j] for a square block of kWidth.
template <typename Row>
VLA_INLINE void transpose(Row row, float* dst, int64_t dst_ld) {
  const float32x4_t a = row(0).v, b = row(1).v, c = row(2).v, d = row(3).v;
  const float32x4x2_t ab = vtrnq_f32(a, b), cd = vtrnq_f32(c, d);
  vst1q_f32(dst, vcombine_f32(vget_low_f32(ab.val[0]), vget_low_f32(cd.val[0])));
  vst1q_f32(dst + dst_ld, vcombine_f32(vget_low_f32(ab.val[1]), vget_low_f32(cd.val[1])));
  vst1q_f32(dst + 2 * dst_ld, vcombine_f32(vget_high_f32(ab.val[0]), vget_high_f32(cd.val[0])));
  vst1q_f32(dst + 3 * dst_ld, vcombine_f32(vget_high_f32(ab.val[1]), vget_high_f32(cd.val[1])));
}

}  // namespace vla::VLA_ISA
