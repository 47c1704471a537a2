// Four fp32 values through the compiler's vector extension, which every target of GCC and clang has.
#pragma once

#include <cstdint>

namespace vla::VLA_ISA {

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));

struct Vec {
  static constexpr int kWidth = 4;
  Float4 v;
};
struct Mask {
  Int4 m;
};

constexpr const char* kIsaName = "portable";
constexpr int kTileRows = 4;
constexpr int kTileVecs = 2;
constexpr int kRowTileCols = 3;  // of weights kept row by row; rows are four
constexpr int kPeakAccumulators = 8;

VLA_INLINE Vec splat(float x) { return {Float4{x, x, x, x}}; }
VLA_INLINE Vec zero() { return splat(0.0f); }
VLA_INLINE Vec broadcast(const float* p) { return splat(*p); }
VLA_INLINE Vec load(const float* p) {
  Vec a;
  __builtin_memcpy(&a.v, p, sizeof a.v);
  return a;
}
VLA_INLINE Vec load(const Bf16* p) {
  typedef uint32_t Unsigned4 __attribute__((vector_size(16)));
  const Unsigned4 bits = {p[0].bits, p[1].bits, p[2].bits, p[3].bits};
  return {reinterpret_cast<Float4>(bits << 16)};
}
// With its bits at the place of those of fp32 a value is too small by 2^112, subnormal ones included.
VLA_INLINE Vec load(const Half* p) {
  typedef uint32_t Unsigned4 __attribute__((vector_size(16)));
  const Unsigned4 half = {p[0].bits, p[1].bits, p[2].bits, p[3].bits};
  const Unsigned4 bits = (half & 0x7fffu) << 13 | (half & 0x8000u) << 16;
  return {reinterpret_cast<Float4>(bits) * 0x1p112f};
}
VLA_INLINE Vec load(const int8_t* p) {
  return {Float4{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]),
                 static_cast<float>(p[3])}};
}
VLA_INLINE void store(float* p, Vec a) { __builtin_memcpy(p, &a.v, sizeof a.v); }

// All bits set in the first n lanes (0 <= n <= 4).
VLA_INLINE Int4 lanes_below(int64_t n) {
  const int32_t count = static_cast<int32_t>(n);
  return Int4{0, 1, 2, 3} < Int4{count, count, count, count};
}
// The first n values; the rest are zero and their memory is not touched.
VLA_INLINE Vec load_first(const float* p, int64_t n) {
  Vec a = zero();
  for (int64_t i = 0; i < n; ++i) a.v[i] = p[i];
  return a;
}
VLA_INLINE void store_first(float* p, Vec a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = a.v[i];
}
VLA_INLINE Vec keep_first(Vec a, int64_t n) {
  return {reinterpret_cast<Float4>(reinterpret_cast<Int4>(a.v) & lanes_below(n))};
}

VLA_INLINE Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
VLA_INLINE Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
VLA_INLINE Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
VLA_INLINE Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
// Two roundings: a fused one would be a library call where the baseline instruction set has none.
VLA_INLINE Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
VLA_INLINE Vec select(Mask m, Vec yes, Vec no) {
  const Int4 bits = (m.m & reinterpret_cast<Int4>(yes.v)) | (~m.m & reinterpret_cast<Int4>(no.v));
  return {reinterpret_cast<Float4>(bits)};
}
VLA_INLINE Mask less(Vec a, Vec b) { return {a.v < b.v}; }
// sum += a * b.
VLA_INLINE void multiply_add(Vec& sum, Vec a, Vec b) { sum = fma(a, b, sum); }

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
  Int4 v;
};
VLA_INLINE Nibbles load_nibbles(const uint8_t* p) {
  Nibbles a;
  __builtin_memcpy(&a.v, p, sizeof a.v);
  return a;
}
// The I-th of each, the lowest first.
template <int I>
VLA_INLINE Vec nibble(Nibbles a) {
  return {__builtin_convertvector((a.v >> (4 * I)) & 15, Float4)};
}

// max and min return b where either is NaN.
VLA_INLINE Vec max(Vec a, Vec b) { return select({a.v > b.v}, a, b); }
VLA_INLINE Vec min(Vec a, Vec b) { return select({a.v < b.v}, a, b); }
VLA_INLINE Int4 sign_bit() {
  constexpr int32_t kSign = INT32_MIN;
  return Int4{kSign, kSign, kSign, kSign};
}
VLA_INLINE Vec abs(Vec a) { return {reinterpret_cast<Float4>(reinterpret_cast<Int4>(a.v) & ~sign_bit())}; }
// The magnitude of a, which is not negative, with the sign of b.
VLA_INLINE Vec with_sign_of(Vec a, Vec b) {
  const Int4 bits = reinterpret_cast<Int4>(a.v) | (reinterpret_cast<Int4>(b.v) & sign_bit());
  return {reinterpret_cast<Float4>(bits)};
}
// Adding 1.5 * 2^23 leaves no bits for a fraction; valid for |a| < 2^22.
VLA_INLINE Vec round_to_even(Vec a) {
  const Vec shift = splat(12582912.0f);
  return (a + shift) - shift;
}
// 2^n for integral n in [-126, 127], and zero for -127.
VLA_INLINE Vec power_of_two(Vec n) {
  const Int4 whole = __builtin_convertvector(n.v, Int4);
  return {reinterpret_cast<Float4>((whole + Int4{127, 127, 127, 127}) << 23)};
}
// The float whose exponent field is the lowest eight bits of a: 2^(them - 127), and zero for zero.
VLA_INLINE Vec exponent_of_lowest_bits(Vec a) {
  typedef uint32_t Unsigned4 __attribute__((vector_size(16)));
  return {reinterpret_cast<Float4>(reinterpret_cast<Unsigned4>(a.v) << 23)};
}
// a times 2^n, where n is added to a's exponent field: the lowest bits of `shifted` as a number of 2^-kFraction.
template <int kFraction>
VLA_INLINE Vec times_power_of_lowest_bits(Vec a, Vec shifted) {
  typedef uint32_t Unsigned4 __attribute__((vector_size(16)));
  const Unsigned4 power = reinterpret_cast<Unsigned4>(shifted.v) << (23 - kFraction);
  return {reinterpret_cast<Float4>(reinterpret_cast<Unsigned4>(a.v) + power)};
}
constexpr int kTableBits = 0;  // of a table to look values up in, which there is not
// The bits of `seen`, and those in which a and b differ.
VLA_INLINE Vec differing_bits(Vec seen, Vec a, Vec b) {
  const Int4 differing = reinterpret_cast<Int4>(a.v) ^ reinterpret_cast<Int4>(b.v);
  return {reinterpret_cast<Float4>(reinterpret_cast<Int4>(seen.v) | differing)};
}
// Of lanes with other bits than the lowest kBits.
template <int kBits>
VLA_INLINE Mask beyond_bits(Vec a) {
  return {(reinterpret_cast<Int4>(a.v) & -(1 << kBits)) != 0};
}
VLA_INLINE float first_lane(Vec a) { return a.v[0]; }
VLA_INLINE float sum(Vec a) { return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]); }
// to[i] = the sum of the i-th.
VLA_INLINE void sums_of_four(Vec a, Vec b, Vec c, Vec d, float* to) {
  to[0] = sum(a);
  to[1] = sum(b);
  to[2] = sum(c);
  to[3] = sum(d);
}
VLA_INLINE float max_lane(Vec a) {
  const float x = a.v[0] > a.v[1] ? a.v[0] : a.v[1], y = a.v[2] > a.v[3] ? a.v[2] : a.v[3];
  return x > y ? x : y;
}

// dst[j][i] = row(i)[j] for a square block of kWidth.
template <typename Row>
VLA_INLINE void transpose(Row row, float* dst, int64_t dst_ld) {
  for (int i = 0; i < 4; ++i) {
    const Vec from = row(i);
    for (int j = 0; j < 4; ++j) dst[j * dst_ld + i] = from.v[j];
  }
}

}  // namespace vla::VLA_ISA
