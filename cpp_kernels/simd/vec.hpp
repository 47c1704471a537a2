// The vector type of the instruction set that this translation unit is compiled for.
//
// The build compiles each kernel source once per instruction set, with VLA_ISA as the namespace and one
// of VLA_ISA_PORTABLE, VLA_ISA_AVX2, VLA_ISA_AVX512, VLA_ISA_NEON defined. Everything that depends on
// the instruction set lives in that namespace and nothing here uses the standard library: two copies of
// an inline function compiled with different flags would be merged by the linker, which may keep the one
// that this processor cannot run.
#pragma once

#include <cstdint>

#define VLA_INLINE inline __attribute__((always_inline))
// Before a loop of few steps that is to stay one.
#if defined(__clang__)
#define VLA_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define VLA_ROLLED _Pragma("GCC unroll 1")
#endif

namespace vla {

// A bfloat16 value: the upper half of a fp32 one.
struct Bf16 {
  uint16_t bits;
};

// A value in float16.
struct Half {
  uint16_t bits;
};

}  // namespace vla

#if defined(VLA_ISA_AVX512)
#include "simd/vec_avx512.hpp"
#elif defined(VLA_ISA_AVX2)
#include "simd/vec_avx2.hpp"
#elif defined(VLA_ISA_NEON)
#include "simd/vec_neon.hpp"
#elif defined(VLA_ISA_PORTABLE)
#include "simd/vec_portable.hpp"
#else
#error "define one of VLA_ISA_PORTABLE, VLA_ISA_AVX2, VLA_ISA_AVX512, VLA_ISA_NEON"
#endif

namespace vla::VLA_ISA {

VLA_INLINE Vec operator-(Vec a) { return zero() - a; }

// A whole vector, or its first n values: partial loads and stores are slow enough on some processors to be
// kept to the ends of rows, where nothing past the end may be touched.
struct Whole {};
struct First {
  int64_t n;
};
VLA_INLINE Vec load(const float* p, Whole) { return load(p); }
VLA_INLINE Vec load(const float* p, First part) { return load_first(p, part.n); }
VLA_INLINE Vec load(const Bf16* p, Whole) { return load(p); }
VLA_INLINE Vec load(const Bf16* p, First part) {
  Bf16 values[Vec::kWidth] = {};
  for (int64_t i = 0; i < part.n; ++i) values[i] = p[i];
  return load(values);
}
VLA_INLINE void store(float* p, Vec a, Whole) { store(p, a); }
VLA_INLINE void store(float* p, Vec a, First part) { store_first(p, a, part.n); }
VLA_INLINE Vec keep(Vec a, Whole) { return a; }
VLA_INLINE Vec keep(Vec a, First part) { return keep_first(a, part.n); }

// body(column, Whole or First) for the vectors that cover `columns` values.
template <typename Body>
VLA_INLINE void over_columns(int64_t columns, Body body) {
  int64_t c = 0;
  for (; c + Vec::kWidth <= columns; c += Vec::kWidth) body(c, Whole{});
  if (c < columns) body(c, First{columns - c});
}

// dst[j][i] = src[i][j] for a square block of Vec::kWidth.
VLA_INLINE void transpose(const float* src, int64_t src_ld, float* dst, int64_t dst_ld) {
  transpose([&](int i) { return load(src + i * src_ld); }, dst, dst_ld);
}

VLA_INLINE void prefetch_near(const void* p) { __builtin_prefetch(p, 0, 3); }
VLA_INLINE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }
VLA_INLINE void prefetch_to_write(const void* p) { __builtin_prefetch(p, 1, 3); }

VLA_INLINE int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
VLA_INLINE int64_t max_of(int64_t a, int64_t b) { return a < b ? b : a; }
VLA_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
VLA_INLINE int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace vla::VLA_ISA
