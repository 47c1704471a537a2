#include "kernels/tile.hpp"

#include "kernels/math.hpp"

namespace vla::VLA_ISA {
namespace {

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
  VLA_INLINE void add_one() {
    front.add_one();
    back = back + splat(1.0f);
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
  VLA_INLINE void store(float*) const {}
  template <typename Value>
  VLA_INLINE void multiply_add(Value, const Lanes&) {}
  VLA_INLINE void add(const Lanes&) {}
  VLA_INLINE void add_one() {}
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
  VLA_INLINE void relu() {}
  VLA_INLINE void modulate(const Row&, const Row&) {}
  VLA_INLINE void store(float*, int64_t) const {}
};

// Sums over this many steps of four k are put aside and later added up: a long chain of sums rounds more than a
// few short ones.
constexpr int64_t kStretchSteps = 32;

template <int K, int R, int V, typename W>
VLA_INLINE void step(Rows<R, V>& sums, const Quads<R>& a, const W* b) {
  Lanes<V> lanes;
  lanes.load(b + K * kTileCols);
  sums.template multiply_add<K>(a, lanes);
}

VLA_INLINE void fetch_row(const TileArgs& t, int64_t row) {
  for (int c = 0; c < kTileCols; c += 16) {
    prefetch_to_write(t.y + row * t.y_ld + c);
    if (t.residual) prefetch_far(t.residual + row * t.residual_ld + c);
  }
}

VLA_INLINE void take_panel(const TileArgs& t, const float*& b) { b = t.b; }
VLA_INLINE void take_panel(const TileArgs& t, const Bf16*& b) { b = t.b_bf16; }

template <int R, int Lines, typename W>
__attribute__((noinline)) void tile(const TileArgs& t) {
  // Rows of y and of the residual, needed after the loop below, may be far away. They are fetched one by one during
  // its first half: all at once would hold up the loop's own operands.
  const int64_t steps_per_row = max_of(1, t.runs * t.run / (4 * 2 * R));
  int64_t until_fetch = 1;
  int row = 0;
  using RowLanes = Lanes<kTileVecs>;
  Rows<R, kTileVecs> sums;
  sums.clear();
  alignas(64) float aside[R * kTileCols];  // the sums over earlier stretches
  bool any_aside = false;
  int64_t until_aside = kStretchSteps;
  const W* b;
  take_panel(t, b);
  const auto* upcoming = static_cast<const char*>(t.upcoming);
  for (int64_t i = 0; i < t.runs; ++i) {
    const float* a = t.a + i * t.run_stride;
    int64_t k = t.run;
    while (k >= 4) {
      if (until_aside == 0) {
        if (any_aside) sums.add_from(aside, kTileCols);
        sums.store(aside, kTileCols);
        sums.clear();
        any_aside = true;
        until_aside = kStretchSteps;
      }
      const int64_t steps = min_of(k / 4, until_aside);
      until_aside -= steps;
      k -= 4 * steps;
      for (int64_t s = 0; s < steps; ++s) {
        Quads<R> quads;
        quads.load(a, t.a_ld);
        step<0>(sums, quads, b);
        step<1>(sums, quads, b);
        step<2>(sums, quads, b);
        step<3>(sums, quads, b);
        for (int line = 0; line < Lines; ++line) prefetch_far(upcoming + line * kLineBytes);
        upcoming += Lines * kLineBytes;
        if (--until_fetch == 0) {
          fetch_row(t, row);
          until_fetch = ++row < R ? steps_per_row : -1;
        }
        a += 4;
        b += 4 * kTileCols;
      }
    }
    for (; k > 0; --k) {
      RowLanes lanes;
      lanes.load(b);
      sums.multiply_add(a, t.a_ld, lanes);
      ++a;
      b += kTileCols;
    }
  }
  if (any_aside) sums.add_from(aside, kTileCols);

  const bool in_registers = t.activation == Activation::kNone || t.activation == Activation::kRelu;
  if (t.cols < kTileCols || !in_registers) {
    float memory[R * kTileCols];
    sums.store(memory, kTileCols);
    finish_in_memory(memory, R, t);
    return;
  }
  if (t.accumulate) sums.add_from(t.y, t.y_ld);
  if (t.bias) {
    RowLanes bias;
    bias.load(t.bias);
    sums.add(bias);
  }
  if (t.residual) sums.add_from(t.residual, t.residual_ld);
  if (t.activation == Activation::kRelu) sums.relu();
  if (t.gamma) {
    RowLanes scale, shift;
    scale.load(t.gamma);
    scale.add_one();
    shift.load(t.beta);
    sums.modulate(scale, shift);
  }
  sums.store(t.y, t.y_ld);
}

// R rows of a times the first V vectors of a panel's columns.
template <int R, int V>
VLA_INLINE void multiply_panel(const PanelsArgs& t, int64_t panel) {
  const float* a = t.a;
  const float* b = t.b + panel * t.k * kTileCols;
  Rows<R, V> sums;
  sums.clear();
  int64_t k = t.k;
  for (; k >= 4; k -= 4) {
    Quads<R> quads;
    quads.load(a, t.a_ld);
    step<0>(sums, quads, b);
    step<1>(sums, quads, b);
    step<2>(sums, quads, b);
    step<3>(sums, quads, b);
    a += 4;
    b += 4 * kTileCols;
  }
  for (; k > 0; --k) {
    Lanes<V> lanes;
    lanes.load(b);
    sums.multiply_add(a, t.a_ld, lanes);
    ++a;
    b += kTileCols;
  }
  sums.store(t.y + panel * kTileCols, t.y_ld);
}

template <int R>
__attribute__((noinline)) void panels_tile(const PanelsArgs& t) {
  const int64_t whole = t.cols / kTileCols, left = t.cols - whole * kTileCols;
  for (int64_t p = 0; p < whole; ++p) multiply_panel<R, kTileVecs>(t, p);
  if (left > kTileCols / 2) multiply_panel<R, kTileVecs>(t, whole);
  if (0 < left && left <= kTileCols / 2) multiply_panel<R, kTileVecs / 2>(t, whole);
}

template <int R>
VLA_INLINE void dispatch_panels(int64_t rows, const PanelsArgs& t) {
  if constexpr (R > 1) {
    if (rows != R) return dispatch_panels<R - 1>(rows, t);
  }
  panels_tile<R>(t);
}

template <typename W, int Lines, int R>
VLA_INLINE void dispatch(int64_t rows, const TileArgs& t) {
  if constexpr (R > 1) {
    if (rows != R) return dispatch<W, Lines, R - 1>(rows, t);
  }
  tile<R, Lines, W>(t);
}

template <typename W>
VLA_INLINE void dispatch_lines(int64_t rows, const TileArgs& t) {
  if (t.upcoming_lines == 1) return dispatch<W, 1, kTileRows>(rows, t);
  dispatch<W, kManyLines, kTileRows>(rows, t);
}

}  // namespace

void finish_in_memory(const float* sums, int64_t rows, const TileArgs& t) {
  for (int64_t r = 0; r < rows; ++r) {
    over_columns(t.cols, [&](int64_t c, auto part) {
      float* y = t.y + r * t.y_ld + c;
      Vec v = load(sums + r * kTileCols + c);
      if (t.accumulate) v = v + load(y, part);
      if (t.bias) v = v + load(t.bias + c, part);
      if (t.residual) v = v + load(t.residual + r * t.residual_ld + c, part);
      v = activate(v, t.activation);
      if (t.gamma) v = fma(v, load(t.gamma + c, part) + splat(1.0f), load(t.beta + c, part));
      store(y, v, part);
    });
  }
}

void run_tile(int64_t rows, const TileArgs& args) {
  if (args.b_bf16) return dispatch_lines<Bf16>(rows, args);
  dispatch_lines<float>(rows, args);
}

void run_panels(int64_t rows, const PanelsArgs& args) { dispatch_panels<kTileRows>(rows, args); }

}  // namespace vla::VLA_ISA
