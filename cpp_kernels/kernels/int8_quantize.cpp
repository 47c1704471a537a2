#include "kernels/int8_quantize.hpp"

#include "kernels/int8_rows.hpp"
#include "kernels/int8_table.hpp"

namespace vla::VLA_ISA {

float int8_largest(const float* x, Range values) {
  Vec most = zero();
  Vec nothing = zero();  // times each value: zero, unless one is infinite or no number, which a maximum may pass over
  over_columns(values.end - values.begin, [&](int64_t i, auto part) {
    const Vec v = load(x + values.begin + i, part);
    most = max(most, abs(v));
    nothing = fma(v, zero(), nothing);
  });
  return max_lane(most) + sum(nothing);
}

void int8_quantize(const float* x, int64_t count, float scale, Quantized* to) {
  // Values so small that their scale is zero come out as zeros. Where the scale is subnormal, and so has few
  // digits, a quotient can exceed the limit. Where the scale is no number, neither are the results, whatever is stored.
  const Vec divisor = splat(scale > 0.0f ? scale : 1.0f);
  const Vec limit = splat(static_cast<float>(kInt8Limit)), lowest = splat(-static_cast<float>(kInt8Limit));
  const auto quantized = [&](Vec v) { return round_to_even(min(max(v / divisor, lowest), limit)); };
  int64_t i = 0;
  for (; i + Vec::kWidth <= count; i += Vec::kWidth) store_quantized(to + i, quantized(load(x + i)));
  if (i == count) return;
  Quantized last[Vec::kWidth];
  store_quantized(last, quantized(load_first(x + i, count - i)));
  for (int64_t j = 0; i < count; ++i, ++j) to[i] = last[j];
}

void int8_quantize_rows(const LinearArgs& g, Range rows, Int8Input out) {
  auto* values = reinterpret_cast<Quantized*>(out.values);
  const int64_t ld = int8_rows_ld(g.k);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = g.x + r * g.x_ld;
    out.scales[r] = int8_scale(int8_largest(x, {0, g.k}));
    int8_quantize(x, g.k, out.scales[r], values + r * ld);
  }
}

}  // namespace vla::VLA_ISA
