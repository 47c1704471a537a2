#include "kernels/math.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

template <typename F>
VLA_INLINE void binary_rows(const BinaryArgs& a, Range rows, F f) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* p = a.a + row * a.a_ld;
    const float* q = a.b + row * a.b_ld;
    float* y = a.y + row * a.y_ld;
    if (a.b_value) {
      const Vec value = splat(*q);
      over_columns(a.cols, [&](int64_t c, auto part) { store(y + c, f(load(p + c, part), value), part); });
      continue;
    }
    over_columns(a.cols, [&](int64_t c, auto part) { store(y + c, f(load(p + c, part), load(q + c, part)), part); });
  }
}

template <Activation kActivation>
void pointwise_rows(const PointwiseArgs& a, Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* x = a.x + row * a.x_ld;
    float* y = a.y + row * a.y_ld;
    over_columns(a.cols, [&](int64_t c, auto part) {
      Vec v = activate(load(x + c, part), kActivation);
      if (a.gamma) v = fma(v, load(a.gamma + c, part) + splat(1.0f), load(a.beta + c, part));
      store(y + c, v, part);
    });
  }
}

}  // namespace

void binary(const BinaryArgs& a, Range rows) {
  switch (a.op) {
    case Binary::kAdd:
      return binary_rows(a, rows, [](Vec p, Vec q) { return p + q; });
    case Binary::kSub:
      return binary_rows(a, rows, [](Vec p, Vec q) { return p - q; });
    case Binary::kMul:
      return binary_rows(a, rows, [](Vec p, Vec q) { return p * q; });
    case Binary::kDiv:
      return binary_rows(a, rows, [](Vec p, Vec q) { return p / q; });
    case Binary::kMin:
      return binary_rows(a, rows, [](Vec p, Vec q) { return min(p, q); });
    case Binary::kMax:
      return binary_rows(a, rows, [](Vec p, Vec q) { return max(p, q); });
  }
}

void pointwise(const PointwiseArgs& a, Range rows) {
  with_activation(a.activation, [&](auto activation) { pointwise_rows<activation.value>(a, rows); });
}

}  // namespace vla::VLA_ISA
