#include "kernels/tile.hpp"

#include "kernels/lanes.hpp"
#include "kernels/math.hpp"

namespace vla::VLA_ISA {
namespace {

template <int K, int R, int V, typename W>
VLA_INLINE void step(Rows<R, V>& sums, const Quads<R>& a, const W* b) {
  Lanes<V> lanes;
  lanes.load(b + K * kTileCols);
  sums.template multiply_add<K>(a, lanes);
}

template <int V>
VLA_INLINE void fetch_row(const TileArgs& t, int64_t row) {
  for (int c = 0; c < V * Vec::kWidth; c += 16) {
    prefetch_to_write(t.y + row * t.y_ld + c);
    if (t.also_y) prefetch_to_write(t.also_y + row * t.y_ld + c);
    if (t.residual) prefetch_far(t.residual + row * t.residual_ld + c);
  }
}

VLA_INLINE void take_panel(const TileArgs& t, const float*& b) { b = t.b; }
VLA_INLINE void take_panel(const TileArgs& t, const Bf16*& b) { b = t.b_bf16; }

// R rows of a times the first V vectors of the panel's columns.
template <int R, int V, int Lines, typename W>
__attribute__((noinline)) void tile(const TileArgs& t) {
  constexpr int kCols = V * Vec::kWidth;
  // Rows of y and of the residual, needed after the loop below, may be far away. They are fetched one by one during
  // its first half: all at once would hold up the loop's own operands.
  const int64_t steps_per_row = max_of(1, t.runs * t.run / (4 * 2 * R));
  int64_t until_fetch = 1;
  int row = 0;
  using RowLanes = Lanes<V>;
  Rows<R, V> sums;
  sums.clear();
  alignas(64) float aside[R * kCols];  // the sums over earlier stretches
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
        if (any_aside) sums.add_from(aside, kCols);
        sums.store(aside, kCols);
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
          fetch_row<V>(t, row);
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
  if (any_aside) sums.add_from(aside, kCols);

  if (t.also == Also::kStore) sums.store(t.also_y, t.y_ld);
  if (t.also == Also::kAdd) sums.add_to(t.also_y, t.y_ld);
  if (t.also == Also::kSubtract) sums.subtract_from(t.also_y, t.y_ld);

  const bool in_registers = t.activation == Activation::kNone || t.activation == Activation::kRelu;
  if (t.cols < kCols || !in_registers) {
    float memory[R * kCols];
    sums.store(memory, kCols);
    finish_in_memory(memory, R, t, kCols);
    return;
  }
  if (t.accumulate) sums.add_from(t.y, t.y_ld);
  if (t.row_factors) sums.scale(t.row_factors);
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

template <typename W, int V, int Lines, int R>
VLA_INLINE void dispatch(int64_t rows, const TileArgs& t) {
  if constexpr (R > 1) {
    if (rows != R) return dispatch<W, V, Lines, R - 1>(rows, t);
  }
  tile<R, V, Lines, W>(t);
}

template <typename W>
VLA_INLINE void dispatch_size(int64_t rows, const TileArgs& t) {
  // Of a panel that is half empty, as of a layer with few channels, the other half is left out.
  constexpr int kHalf = kTileVecs / 2;
  if constexpr (kHalf > 0) {
    const bool half_empty = t.cols <= kHalf * Vec::kWidth && t.also == Also::kNothing;
    if (half_empty) return dispatch<W, kHalf, 1, kTileRows>(rows, t);
  }
  if (t.upcoming_lines == 1) return dispatch<W, kTileVecs, 1, kTileRows>(rows, t);
  if constexpr (kPanelLines<W> > kManyLines) {
    if (t.upcoming_lines > kManyLines) return dispatch<W, kTileVecs, kPanelLines<W>, kTileRows>(rows, t);
  }
  dispatch<W, kTileVecs, kManyLines, kTileRows>(rows, t);
}

// A vector of columns of all rows; sums begin at its first column.
template <Activation kActivation, typename Part>
VLA_INLINE void finish_column(const float* sums, int64_t sums_ld, int64_t rows, const TileArgs& t, int64_t c,
                              Part part) {
  const Vec bias = t.bias ? load(t.bias + c, part) : zero();
  const bool bias_alone = t.bias && !t.accumulate && !t.row_factors && !t.residual && !t.gamma;
  if (bias_alone) {  // as of an action head, in whose few columns asking for the rest takes as long as adding
    for (int64_t r = 0; r < rows; ++r) {
      store(t.y + r * t.y_ld + c, activate(load(sums + r * sums_ld) + bias, kActivation), part);
    }
    return;
  }
  const Vec scale = t.gamma ? load(t.gamma + c, part) + splat(1.0f) : zero();
  const Vec shift = t.gamma ? load(t.beta + c, part) : zero();
  for (int64_t r = 0; r < rows; ++r) {
    float* y = t.y + r * t.y_ld + c;
    Vec v = load(sums + r * sums_ld);
    if (t.accumulate) v = v + load(y, part);
    if (t.row_factors) v = v * broadcast(t.row_factors + r);
    if (t.bias) v = v + bias;
    if (t.residual) v = v + load(t.residual + r * t.residual_ld + c, part);
    v = activate(v, kActivation);
    if (t.gamma) v = fma(v, scale, shift);
    store(y, v, part);
  }
}

}  // namespace

void finish_in_memory(const float* sums, int64_t rows, const TileArgs& t, int64_t sums_ld) {
  with_activation(t.activation, [&](auto activation) {
    over_columns(t.cols, [&](int64_t c, auto part) {
      finish_column<activation.value>(sums + c, sums_ld, rows, t, c, part);
    });
  });
}

void run_tile(int64_t rows, const TileArgs& args) {
  if (args.b_bf16) return dispatch_size<Bf16>(rows, args);
  dispatch_size<float>(rows, args);
}

void run_panels(int64_t rows, const PanelsArgs& args) { dispatch_panels<kTileRows>(rows, args); }

}  // namespace vla::VLA_ISA
