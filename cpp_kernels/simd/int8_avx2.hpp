// INT8 products in 256-bit registers: of bytes by AVX-VNNI, or of 16-bit pairs by AVX2.
#pragma once

namespace vla::VLA_ISA {

struct Sums {
  __m256i v;
};
struct Weights {
  __m256i v;
};
struct Group {
  __m256i v;
};

#ifdef VLA_INT8_DOT

constexpr const char* kInt8Name = "avxvnni";
constexpr int kInt8TileRows = 6;
constexpr int kInt8TileVecs = 2;

using Quantized = uint8_t;
using PackedWeight = int8_t;
constexpr int kGroup = 4;
constexpr int kZeroPoint = 128;

// In assembly for the reason given at the fp32 multiply_add.
VLA_INLINE void multiply_add(Sums& sum, Group a, Weights w) {
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.v) : "x"(a.v), "x"(w.v));
}
VLA_INLINE Weights load_weights(const PackedWeight* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}

VLA_INLINE void store_quantized(Quantized* to, Vec x) {
  const __m256i wide = _mm256_add_epi32(_mm256_cvtps_epi32(x.v), _mm256_set1_epi32(kZeroPoint));
  const __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(half, half));
}

#else

constexpr const char* kInt8Name = "avx2";
constexpr int kInt8TileRows = 6;
constexpr int kInt8TileVecs = 2;

using Quantized = int16_t;
using PackedWeight = int16_t;
constexpr int kGroup = 2;
constexpr int kZeroPoint = 0;

// In assembly, because GCC adds the products of several steps before it adds them to the sum, and has to spill them.
VLA_INLINE void multiply_add(Sums& sum, Group a, Weights w) {
  __m256i products;
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum.v), "=&x"(products) : "x"(a.v), "x"(w.v));
}
VLA_INLINE Weights load_weights(const PackedWeight* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}

VLA_INLINE void store_quantized(Quantized* to, Vec x) {
  const __m256i wide = _mm256_cvtps_epi32(x.v);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1)));
}

// Quantized values that may have all of their 16 bits: what a transform makes of them. All of it wraps around.
struct Shorts {
  __m256i v;
  static constexpr int kWidth = 16;
};
VLA_INLINE Shorts load_shorts(const Quantized* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
VLA_INLINE void store_shorts(Quantized* p, Shorts a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v); }
VLA_INLINE Shorts operator+(Shorts a, Shorts b) { return {_mm256_add_epi16(a.v, b.v)}; }
VLA_INLINE Shorts operator-(Shorts a, Shorts b) { return {_mm256_sub_epi16(a.v, b.v)}; }
template <int N>
VLA_INLINE Shorts times_power(Shorts a) {
  return {_mm256_slli_epi16(a.v, N)};
}

VLA_INLINE Sums operator+(Sums a, Sums b) { return {_mm256_add_epi32(a.v, b.v)}; }
VLA_INLINE Sums operator-(Sums a, Sums b) { return {_mm256_sub_epi32(a.v, b.v)}; }
VLA_INLINE Sums operator*(Sums a, int32_t b) { return {_mm256_mullo_epi32(a.v, _mm256_set1_epi32(b))}; }
template <int N>
VLA_INLINE Sums times_power(Sums a) {
  return {_mm256_slli_epi32(a.v, N)};
}
// a / 2^N, rounded down.
template <int N>
VLA_INLINE Sums over_power(Sums a) {
  return {_mm256_srai_epi32(a.v, N)};
}

#endif

VLA_INLINE int64_t weight_place(int64_t lane, int64_t value) { return lane * kGroup + value; }

VLA_INLINE Sums load_sums(const int32_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
VLA_INLINE void store_sums(int32_t* p, Sums a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v); }
VLA_INLINE Vec to_float(Sums a) { return {_mm256_cvtepi32_ps(a.v)}; }

// A group fills 32 bits.
VLA_INLINE Group load_group(const Quantized* p) {
  int32_t group;
  __builtin_memcpy(&group, p, sizeof group);
  return {_mm256_set1_epi32(group)};
}

// Four adjacent groups of a row, broadcast from memory when taken.
struct FourGroups {
  const Quantized* p;
};
VLA_INLINE FourGroups load_four_groups(const Quantized* p) { return {p}; }
template <int I>
VLA_INLINE Group take_group(FourGroups four) {
  return load_group(four.p + I * kGroup);
}

}  // namespace vla::VLA_ISA
