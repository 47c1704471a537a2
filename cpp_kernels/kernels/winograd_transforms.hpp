// The one-dimensional transforms of Winograd's method, each for kOutputs adjacent output values of a filter with three
// taps.
//
// A line of kInputs pixels becomes kValues values, each of which belongs to one of kPoints points; the products at
// the points become the outputs. With stride 2 the even pixels meet the outer two taps and the odd ones the middle
// tap: two convolutions with stride 1 (phases), whose products are summed at the points before they are turned back.
// The points are +-p, .. and infinity, and 0 where one more is needed. The polynomials of `input` have leading
// coefficient one; the filter's transform carries the divisors, in double precision.
#pragma once

#include "simd/vec.hpp"

namespace vla::VLA_ISA {

// The product of a point's distances from the others.
template <int N>
VLA_INLINE double divisor_of(const double (&points)[N], int point) {
  double divisor = 1.0;
  for (int j = 0; j < N; ++j) divisor *= j == point ? 1.0 : points[point] - points[j];
  return divisor;
}

// Stride 1: every point has one value.
template <int Outputs>
struct UnitStride {
  static constexpr int kStride = 1;
  static constexpr int kOutputs = Outputs, kPoints = Outputs + 2, kInputs = kPoints, kValues = kPoints;
  static constexpr int phases(int) { return 1; }
  static constexpr int point(int value) { return value; }
  static constexpr int phase(int) { return 0; }

  template <int N>
  VLA_INLINE static void filter_at(const double (&points)[N], const double (&g)[3], double* u, int64_t step) {
    for (int i = 0; i < N; ++i) {
      u[i * step] = (g[0] + points[i] * (g[1] + points[i] * g[2])) / divisor_of(points, i);
    }
    u[N * step] = g[2];
  }
};

// Stride 2: the values of the even pixels come first; those of the odd ones, of which there is one fewer, have none
// at infinity.
template <int Outputs>
struct DoubleStride {
  static constexpr int kStride = 2;
  static constexpr int kOutputs = Outputs, kPoints = Outputs + 1;
  static constexpr int kInputs = 2 * Outputs + 1, kValues = kInputs;
  static constexpr int phases(int point) { return point + 1 < kPoints ? 2 : 1; }
  static constexpr int point(int value) { return value < kPoints ? value : value - kPoints; }
  static constexpr int phase(int value) { return value < kPoints ? 0 : 1; }

  template <int N>
  VLA_INLINE static void filter_at(const double (&points)[N], const double (&g)[3], double* u, int64_t step) {
    for (int i = 0; i < N; ++i) {
      u[i * step] = (g[0] + points[i] * g[2]) / divisor_of(points, i);
      u[(kPoints + i) * step] = g[1] / divisor_of(points, i);
    }
    u[N * step] = g[2];
  }
};

template <int Stride, int Outputs>
struct Winograd;

template <>
struct Winograd<1, 2> : UnitStride<2> {
  VLA_INLINE static void input(const Vec (&d)[4], Vec (&v)[4]) {
    v[0] = d[2] - d[0];
    v[1] = d[2] + d[1];
    v[2] = d[2] - d[1];
    v[3] = d[3] - d[1];
  }
  VLA_INLINE static void output(const Vec (&m)[4], Vec (&y)[2]) {
    y[0] = m[0] + (m[1] + m[2]);
    y[1] = m[3] + (m[1] - m[2]);
  }
  VLA_INLINE static void filter(const double (&g)[3], double* u, int64_t step) {
    filter_at({0.0, 1.0, -1.0}, g, u, step);
  }
};

// The points 11/16 and 3/2 cost what 1 and 2 do, with a quarter of the largest error; what is made of them is exact.
template <>
struct Winograd<1, 4> : UnitStride<4> {
  static constexpr float kA = 0.6875f, kB = 1.5f;

  VLA_INLINE static void input(const Vec (&d)[6], Vec (&v)[6]) {
    const Vec near = splat(-kA * kA), far = splat(-kB * kB);
    const Vec sum = splat(-(kA * kA + kB * kB)), product = splat(kA * kA * kB * kB);
    const Vec even_a = fma(far, d[2], d[4]), odd_a = fma(far, d[1], d[3]);
    const Vec even_b = fma(near, d[2], d[4]), odd_b = fma(near, d[1], d[3]);
    v[0] = fma(product, d[0], fma(sum, d[2], d[4]));
    v[1] = fma(splat(kA), odd_a, even_a);
    v[2] = fma(splat(-kA), odd_a, even_a);
    v[3] = fma(splat(kB), odd_b, even_b);
    v[4] = fma(splat(-kB), odd_b, even_b);
    v[5] = fma(product, d[1], fma(sum, d[3], d[5]));
  }
  VLA_INLINE static void output(const Vec (&m)[6], Vec (&y)[4]) {
    const Vec even_a = m[1] + m[2], odd_a = m[1] - m[2];
    const Vec even_b = m[3] + m[4], odd_b = m[3] - m[4];
    y[0] = m[0] + (even_a + even_b);
    y[1] = fma(splat(kB), odd_b, splat(kA) * odd_a);
    y[2] = fma(splat(kB * kB), even_b, splat(kA * kA) * even_a);
    y[3] = fma(splat(kB * kB * kB), odd_b, fma(splat(kA * kA * kA), odd_a, m[5]));
  }
  VLA_INLINE static void filter(const double (&g)[3], double* u, int64_t step) {
    filter_at({0.0, kA, -kA, kB, -kB}, g, u, step);
  }
};

template <>
struct Winograd<2, 2> : DoubleStride<2> {
  VLA_INLINE static void input(const Vec (&d)[5], Vec (&v)[5]) {
    v[0] = d[2] + d[0];
    v[1] = d[2] - d[0];
    v[2] = d[4] - d[0];
    v[3] = d[3] + d[1];
    v[4] = d[3] - d[1];
  }
  VLA_INLINE static void output(const Vec (&m)[3], Vec (&y)[2]) {
    y[0] = m[0] + m[1];
    y[1] = m[2] + (m[0] - m[1]);
  }
  VLA_INLINE static void filter(const double (&g)[3], double* u, int64_t step) { filter_at({1.0, -1.0}, g, u, step); }
};

template <>
struct Winograd<2, 4> : DoubleStride<4> {
  static constexpr float kA = 0.5f, kB = 1.5f;

  VLA_INLINE static void at_points(Vec d0, Vec d1, Vec d2, Vec d3, Vec* v) {
    const Vec near = splat(-kA * kA), far = splat(-kB * kB);
    const Vec even_a = fma(far, d0, d2), odd_a = fma(far, d1, d3);
    const Vec even_b = fma(near, d0, d2), odd_b = fma(near, d1, d3);
    v[0] = fma(splat(kA), even_a, odd_a);
    v[1] = fma(splat(-kA), even_a, odd_a);
    v[2] = fma(splat(kB), even_b, odd_b);
    v[3] = fma(splat(-kB), even_b, odd_b);
  }
  VLA_INLINE static void input(const Vec (&d)[9], Vec (&v)[9]) {
    const Vec sum = splat(-(kA * kA + kB * kB)), product = splat(kA * kA * kB * kB);
    at_points(d[0], d[2], d[4], d[6], v);
    v[4] = fma(product, d[0], fma(sum, d[4], d[8]));
    at_points(d[1], d[3], d[5], d[7], v + 5);
  }
  VLA_INLINE static void output(const Vec (&m)[5], Vec (&y)[4]) {
    const Vec even_a = m[0] + m[1], odd_a = m[0] - m[1];
    const Vec even_b = m[2] + m[3], odd_b = m[2] - m[3];
    y[0] = even_a + even_b;
    y[1] = fma(splat(kB), odd_b, splat(kA) * odd_a);
    y[2] = fma(splat(kB * kB), even_b, splat(kA * kA) * even_a);
    y[3] = fma(splat(kB * kB * kB), odd_b, fma(splat(kA * kA * kA), odd_a, m[4]));
  }
  VLA_INLINE static void filter(const double (&g)[3], double* u, int64_t step) {
    filter_at({kA, -kA, kB, -kB}, g, u, step);
  }
};

}  // namespace vla::VLA_ISA
