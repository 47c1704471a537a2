// INT8 products through the compiler's vector extension.
#pragma once

namespace vla::VLA_ISA {

typedef int16_t Short8 __attribute__((vector_size(16)));
typedef uint32_t Unsigned4 __attribute__((vector_size(16)));

constexpr const char* kInt8Name = "portable";
constexpr int kInt8TileRows = 4;
constexpr int kInt8TileVecs = 2;

using Quantized = int16_t;
using PackedWeight = int16_t;
constexpr int kGroup = 2;
constexpr int kZeroPoint = 0;

VLA_INLINE int64_t weight_place(int64_t lane, int64_t value) { return lane * kGroup + value; }

struct Sums {
  Int4 v;
};
struct Weights {
  Short8 v;
};
struct Group {
  Short8 v;
};

VLA_INLINE Sums load_sums(const int32_t* p) {
  Sums a;
  __builtin_memcpy(&a.v, p, sizeof a.v);
  return a;
}
VLA_INLINE void store_sums(int32_t* p, Sums a) { __builtin_memcpy(p, &a.v, sizeof a.v); }
VLA_INLINE Vec to_float(Sums a) { return {__builtin_convertvector(a.v, Float4)}; }

VLA_INLINE Weights load_weights(const PackedWeight* p) {
  Weights w;
  __builtin_memcpy(&w.v, p, sizeof w.v);
  return w;
}
VLA_INLINE Group load_group(const Quantized* p) {
  const int16_t a = p[0], b = p[1];
  return {Short8{a, b, a, b, a, b, a, b}};
}
// The two products of a lane share 32 bits and are at most 127 * 127 in size.
VLA_INLINE void multiply_add(Sums& sum, Group a, Weights w) {
  const Short8 products = a.v * w.v;
  const Unsigned4 low = reinterpret_cast<Unsigned4>(products) << 16;
  sum.v += (reinterpret_cast<Int4>(low) >> 16) + (reinterpret_cast<Int4>(products) >> 16);
}

// Four adjacent groups of a row.
struct FourGroups {
  const Quantized* p;
};
VLA_INLINE FourGroups load_four_groups(const Quantized* p) { return {p}; }
template <int I>
VLA_INLINE Group take_group(FourGroups four) {
  return load_group(four.p + I * kGroup);
}

// Integral values in [-127, 127].
VLA_INLINE void store_quantized(Quantized* to, Vec x) {
  for (int i = 0; i < Vec::kWidth; ++i) to[i] = static_cast<Quantized>(x.v[i]);
}

}  // namespace vla::VLA_ISA
