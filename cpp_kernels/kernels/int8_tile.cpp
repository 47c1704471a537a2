#include "kernels/int8_tile.hpp"

#include "kernels/math.hpp"

namespace vla::VLA_ISA {
namespace {

// Adjacent vectors of weights, the sums of one row, and a stack of such rows: members nested to a depth known at
// compile time, as in the fp32 tile, so that each stays in a register.
template <int N>
struct WeightLanes {
  WeightLanes<N - 1> front;
  Weights back;
  VLA_INLINE void load(const PackedWeight* p) {
    front.load(p);
    back = load_weights(p + (N - 1) * Vec::kWidth * kGroup);
  }
};

template <>
struct WeightLanes<0> {
  VLA_INLINE void load(const PackedWeight*) {}
};

template <int N>
struct SumLanes {
  SumLanes<N - 1> front;
  Sums back;
  static constexpr int kAt = (N - 1) * Vec::kWidth;
  VLA_INLINE void load(const int32_t* p) {
    front.load(p);
    back = load_sums(p + kAt);
  }
  template <typename Group>
  VLA_INLINE void multiply_add(Group a, const WeightLanes<N>& w) {
    front.multiply_add(a, w.front);
    vla::VLA_ISA::multiply_add(back, a, w.back);
  }
  VLA_INLINE void store(int32_t* p) const {
    front.store(p);
    store_sums(p + kAt, back);
  }
};

template <>
struct SumLanes<0> {
  VLA_INLINE void load(const int32_t*) {}
  template <typename Group>
  VLA_INLINE void multiply_add(Group, const WeightLanes<0>&) {}
  VLA_INLINE void store(int32_t*) const {}
};

// Four adjacent groups of each row.
template <int R>
struct RowGroups {
  RowGroups<R - 1> above;
  FourGroups row;
  VLA_INLINE void load(const Quantized* a, int64_t a_ld) {
    above.load(a, a_ld);
    row = load_four_groups(a + (R - 1) * a_ld);
  }
};

template <>
struct RowGroups<0> {
  VLA_INLINE void load(const Quantized*, int64_t) {}
};

using Lanes = WeightLanes<kInt8TileVecs>;

template <int R>
struct SumRows {
  SumRows<R - 1> above;
  SumLanes<kInt8TileVecs> row;

  VLA_INLINE void start(const int32_t* starts) {
    above.start(starts);
    row.load(starts);
  }
  VLA_INLINE void multiply_add(const Quantized* a, int64_t a_ld, const Lanes& w) {
    above.multiply_add(a, a_ld, w);
    row.multiply_add(load_group(a + (R - 1) * a_ld), w);
  }
  template <int I>
  VLA_INLINE void multiply_add(const RowGroups<R>& a, const Lanes& w) {
    above.template multiply_add<I>(a.above, w);
    row.multiply_add(take_group<I>(a.row), w);
  }
  VLA_INLINE void store(int32_t* p) const {
    above.store(p);
    row.store(p + (R - 1) * kInt8TileCols);
  }
};

template <>
struct SumRows<0> {
  VLA_INLINE void start(const int32_t*) {}
  VLA_INLINE void multiply_add(const Quantized*, int64_t, const Lanes&) {}
  template <int I>
  VLA_INLINE void multiply_add(const RowGroups<0>&, const Lanes&) {}
  VLA_INLINE void store(int32_t*) const {}
};

template <int I, int R>
VLA_INLINE void step(SumRows<R>& sums, const RowGroups<R>& a, const PackedWeight* w) {
  Lanes lanes;
  lanes.load(w + I * kGroupWeights);
  sums.template multiply_add<I>(a, lanes);
}

// What follows the sums, for a vector of columns of all rows.
template <Activation kActivation, typename Part>
VLA_INLINE void finish_column(const int32_t* sums, int64_t rows, const Int8TileArgs& t, int64_t c, Part part) {
  const Epilogue& e = t.epilogue;
  const Vec scales = load(t.panel.scales + c);
  const Vec bias = e.bias ? load(e.bias + c, part) : zero();
  const Vec scale = e.gamma ? load(e.gamma + c, part) + splat(1.0f) : zero();
  const Vec shift = e.gamma ? load(e.beta + c, part) : zero();
  for (int64_t r = 0; r < rows; ++r) {
    Vec v = to_float(load_sums(sums + r * kInt8TileCols + c)) * (broadcast(t.scales + r * t.scale_step) * scales);
    if (e.bias) v = v + bias;
    if (e.residual) v = v + load(e.residual + r * e.residual_ld + c, part);
    v = activate(v, kActivation);
    if (e.gamma) v = fma(v, scale, shift);
    store(t.y + r * t.y_ld + c, v, part);
  }
}

// Rows of the output and of the residual may be far away when the sums are there.
VLA_INLINE void fetch_rows(int64_t rows, const Int8TileArgs& t) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int c = 0; c < kInt8TileCols; c += 16) {
      prefetch_to_write(t.y + r * t.y_ld + c);
      if (t.epilogue.residual) prefetch_far(t.epilogue.residual + r * t.epilogue.residual_ld + c);
    }
  }
}

template <int R>
__attribute__((noinline)) void int8_tile(const Int8TileArgs& t) {
  SumRows<R> sums;
  sums.start(t.panel.starts);
  if (t.sums == nullptr) fetch_rows(R, t);
  const PackedWeight* w = t.panel.weights;
  for (int64_t line = 0; line < t.lines; ++line) {
    for (int64_t run = 0; run < t.runs; ++run) {
      const Quantized* a = t.a + line * t.line_stride + run * t.run_stride;
      int64_t groups = t.groups;
      for (; groups >= 4; groups -= 4) {
        RowGroups<R> four;
        four.load(a, t.a_ld);
        step<0>(sums, four, w);
        step<1>(sums, four, w);
        step<2>(sums, four, w);
        step<3>(sums, four, w);
        a += 4 * kGroup;
        w += 4 * kGroupWeights;
      }
      for (; groups > 0; --groups) {
        Lanes lanes;
        lanes.load(w);
        sums.multiply_add(a, t.a_ld, lanes);
        a += kGroup;
        w += kGroupWeights;
      }
    }
  }
  if (t.sums != nullptr) return sums.store(t.sums);
  int32_t memory[R * kInt8TileCols];
  sums.store(memory);
  finish_int8(memory, R, t);
}

template <int R>
VLA_INLINE void dispatch(int64_t rows, const Int8TileArgs& t) {
  if constexpr (R > 1) {
    if (rows != R) return dispatch<R - 1>(rows, t);
  }
  int8_tile<R>(t);
}

}  // namespace

void finish_int8(const int32_t* sums, int64_t rows, const Int8TileArgs& t) {
  with_activation(t.epilogue.activation, [&](auto activation) {
    over_columns(t.cols, [&](int64_t c, auto part) { finish_column<activation.value>(sums, rows, t, c, part); });
  });
}

void run_int8_tile(int64_t rows, const Int8TileArgs& args) { dispatch<kInt8TileRows>(rows, args); }

}  // namespace vla::VLA_ISA
