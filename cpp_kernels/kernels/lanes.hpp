// The registers of a tile: sums of some rows in some adjacent vectors of columns.
#pragma once

#include "simd/vec.hpp"

namespace vla::VLA_ISA {

// Adjacent vectors of one row, and a stack of such rows. Both are written as members nested to a depth
// known at compile time, not as arrays: GCC keeps the elements of a large array in memory.
template <int N>
struct Lanes {
  Lanes<N - 1> front;
  Vec back;
  static constexpr int kAt = (N - 1) * Vec::kWidth;

  VLA_INLINE void clear() {
    front.clear();
    back = zero();
  }
  template <typename W>
  VLA_INLINE void load(const W* p) {
    front.load(p);
    back = vla::VLA_ISA::load(p + kAt);
  }
  // Vectors that are `apart` values apart.
  VLA_INLINE void load(const float* p, int64_t apart) {
    front.load(p, apart);
    back = vla::VLA_ISA::load(p + (N - 1) * apart);
  }
  VLA_INLINE void store(float* p) const {
    front.store(p);
    vla::VLA_ISA::store(p + kAt, back);
  }
  template <typename Value>
  VLA_INLINE void multiply_add(Value a, const Lanes& b) {
    front.multiply_add(a, b.front);
    vla::VLA_ISA::multiply_add(back, a, b.back);
  }
  VLA_INLINE void add(const Lanes& b) {
    front.add(b.front);
    back = back + b.back;
  }
  VLA_INLINE void add_to(float* p) const {
    front.add_to(p);
    vla::VLA_ISA::store(p + kAt, vla::VLA_ISA::load(p + kAt) + back);
  }
  VLA_INLINE void subtract_from(float* p) const {
    front.subtract_from(p);
    vla::VLA_ISA::store(p + kAt, vla::VLA_ISA::load(p + kAt) - back);
  }
  VLA_INLINE void add_one() {
    front.add_one();
    back = back + splat(1.0f);
  }
  VLA_INLINE void scale(Vec factor) {
    front.scale(factor);
    back = back * factor;
  }
  VLA_INLINE void relu() {
    front.relu();
    back = max(zero(), back);
  }
  VLA_INLINE void modulate(const Lanes& scale, const Lanes& shift) {
    front.modulate(scale.front, shift.front);
    back = fma(back, scale.back, shift.back);
  }
};

template <>
struct Lanes<0> {
  VLA_INLINE void clear() {}
  template <typename W>
  VLA_INLINE void load(const W*) {}
  VLA_INLINE void load(const float*, int64_t) {}
  VLA_INLINE void store(float*) const {}
  template <typename Value>
  VLA_INLINE void multiply_add(Value, const Lanes&) {}
  VLA_INLINE void add(const Lanes&) {}
  VLA_INLINE void add_to(float*) const {}
  VLA_INLINE void subtract_from(float*) const {}
  VLA_INLINE void add_one() {}
  VLA_INLINE void scale(Vec) {}
  VLA_INLINE void relu() {}
  VLA_INLINE void modulate(const Lanes&, const Lanes&) {}
};

// Four adjacent values of each row of the left operand.
template <int R>
struct Quads {
  Quads<R - 1> above;
  Quad row;
  VLA_INLINE void load(const float* a, int64_t a_ld) {
    above.load(a, a_ld);
    row = load_quad(a + (R - 1) * a_ld);
  }
};

template <>
struct Quads<0> {
  VLA_INLINE void load(const float*, int64_t) {}
};

template <int R, int V>
struct Rows {
  using Row = Lanes<V>;
  Rows<R - 1, V> above;
  Row row;

  VLA_INLINE void clear() {
    above.clear();
    row.clear();
  }
  VLA_INLINE void multiply_add(const float* a, int64_t a_ld, const Row& b) {
    above.multiply_add(a, a_ld, b);
    row.multiply_add(broadcast(a + (R - 1) * a_ld), b);
  }
  template <int K>
  VLA_INLINE void multiply_add(const Quads<R>& a, const Row& b) {
    above.template multiply_add<K>(a.above, b);
    row.multiply_add(take<K>(a.row), b);
  }
  VLA_INLINE void add(const Row& b) {
    above.add(b);
    row.add(b);
  }
  VLA_INLINE void add_from(const float* p, int64_t ld) {
    above.add_from(p, ld);
    Row b;
    b.load(p + (R - 1) * ld);
    row.add(b);
  }
  VLA_INLINE void add_to(float* p, int64_t ld) const {
    above.add_to(p, ld);
    row.add_to(p + (R - 1) * ld);
  }
  VLA_INLINE void subtract_from(float* p, int64_t ld) const {
    above.subtract_from(p, ld);
    row.subtract_from(p + (R - 1) * ld);
  }
  // Row by row with these factors.
  VLA_INLINE void scale(const float* factors) {
    above.scale(factors);
    row.scale(broadcast(factors + R - 1));
  }
  VLA_INLINE void relu() {
    above.relu();
    row.relu();
  }
  VLA_INLINE void modulate(const Row& scale, const Row& shift) {
    above.modulate(scale, shift);
    row.modulate(scale, shift);
  }
  VLA_INLINE void store(float* p, int64_t ld) const {
    above.store(p, ld);
    row.store(p + (R - 1) * ld);
  }
  // Row by row with these factors: loaded all at once, they would not have registers.
  VLA_INLINE void store_scaled(const float* factors, float* p, int64_t ld) {
    above.store_scaled(factors, p, ld);
    row.scale(broadcast(factors + R - 1));
    row.store(p + (R - 1) * ld);
  }
};

template <int V>
struct Rows<0, V> {
  using Row = Lanes<V>;
  VLA_INLINE void clear() {}
  VLA_INLINE void multiply_add(const float*, int64_t, const Row&) {}
  template <int K>
  VLA_INLINE void multiply_add(const Quads<0>&, const Row&) {}
  VLA_INLINE void add(const Row&) {}
  VLA_INLINE void add_from(const float*, int64_t) {}
  VLA_INLINE void add_to(float*, int64_t) const {}
  VLA_INLINE void subtract_from(float*, int64_t) const {}
  VLA_INLINE void scale(const float*) {}
  VLA_INLINE void relu() {}
  VLA_INLINE void modulate(const Row&, const Row&) {}
  VLA_INLINE void store(float*, int64_t) const {}
  VLA_INLINE void store_scaled(const float*, float*, int64_t) {}
};

}  // namespace vla::VLA_ISA
