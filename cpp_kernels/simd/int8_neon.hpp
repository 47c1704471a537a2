// INT8 products in 128-bit registers: of bytes by the dot product instructions, or by widening ones.
#pragma once

namespace vla::VLA_ISA {

constexpr int kInt8TileRows = 8;
constexpr int kInt8TileVecs = 2;

using Quantized = int8_t;
using PackedWeight = int8_t;
constexpr int kGroup = 4;
constexpr int kZeroPoint = 0;

struct Sums {
  int32x4_t v;
};
struct Weights {
  int8x16_t v;
};
// Four adjacent groups of a row.
struct FourGroups {
  int8x16_t v;
};
VLA_INLINE FourGroups load_four_groups(const Quantized* p) { return {vld1q_s8(p)}; }

#ifdef VLA_INT8_DOT

constexpr const char* kInt8Name = "neondot";

VLA_INLINE int64_t weight_place(int64_t lane, int64_t value) { return lane * kGroup + value; }

struct Group {
  int8x16_t v;
};
template <int I>
struct GroupLane {
  int8x16_t v;
};
VLA_INLINE Group load_group(const Quantized* p) {
  int32_t group;
  __builtin_memcpy(&group, p, sizeof group);
  return {vreinterpretq_s8_s32(vdupq_n_s32(group))};
}
template <int I>
VLA_INLINE GroupLane<I> take_group(FourGroups four) {
  return {four.v};
}
VLA_INLINE void multiply_add(Sums& sum, Group a, Weights w) { sum.v = vdotq_s32(sum.v, w.v, a.v); }
// In assembly so that sums stay where they are.
template <int I>
VLA_INLINE void multiply_add(Sums& sum, GroupLane<I> a, Weights w) {
  __asm__("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(sum.v) : "w"(w.v), "w"(a.v), "i"(I));
}

#else

constexpr const char* kInt8Name = "neon";

// The first two values of a group for all four channels, then the other two.
VLA_INLINE int64_t weight_place(int64_t lane, int64_t value) { return value / 2 * 8 + lane * 2 + value % 2; }

struct Group {
  int16x8_t first, second;  // two values each, repeated
};
VLA_INLINE Group load_group(const Quantized* p) {
  int16_t pairs[2];
  __builtin_memcpy(pairs, p, sizeof pairs);
  return {vdupq_n_s16(pairs[0]), vdupq_n_s16(pairs[1])};
}
template <int I>
VLA_INLINE Group take_group(FourGroups four) {
  const int16x8_t pairs = vreinterpretq_s16_s8(four.v);
  return {vdupq_laneq_s16(pairs, 2 * I), vdupq_laneq_s16(pairs, 2 * I + 1)};
}
// 16 bits hold the sum of two products, which is at most 2 * 127 * 127. In assembly, because GCC takes the products of
// several steps ahead and has to spill them.
VLA_INLINE void multiply_add(Sums& sum, Group a, Weights w) {
  int16x8_t products;
  __asm__("smull %1.8h, %2.8b, %3.8b\n\tsmlal2 %1.8h, %2.16b, %4.16b\n\tsadalp %0.4s, %1.8h"
          : "+w"(sum.v), "=&w"(products)
          : "w"(w.v), "w"(a.first), "w"(a.second));
}

#endif

VLA_INLINE Weights load_weights(const PackedWeight* p) { return {vld1q_s8(p)}; }
VLA_INLINE Sums load_sums(const int32_t* p) { return {vld1q_s32(p)}; }
VLA_INLINE void store_sums(int32_t* p, Sums a) { vst1q_s32(p, a.v); }
VLA_INLINE Vec to_float(Sums a) { return {vcvtq_f32_s32(a.v)}; }

// Integral values in [-127, 127].
VLA_INLINE void store_quantized(Quantized* to, Vec x) {
  const int16x4_t half = vmovn_s32(vcvtq_s32_f32(x.v));
  const int8x8_t bytes = vmovn_s16(vcombine_s16(half, half));
  const int32_t four = vget_lane_s32(vreinterpret_s32_s8(bytes), 0);
  __builtin_memcpy(to, &four, sizeof four);
}

}  // namespace vla::VLA_ISA
