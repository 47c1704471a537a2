// Bilinear interpolation: two rows of the image become one in scratch memory, and then its pixels those of the result.
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

// The places that a place of the result lies between, and the share of the second.
struct Neighbours {
  int64_t low, high;
  float share;

  VLA_INLINE Neighbours(int64_t at, int64_t source, int64_t target) {
    const double ratio = static_cast<double>(source) / static_cast<double>(target);
    const double centre = (static_cast<double>(at) + 0.5) * ratio - 0.5;
    const double inside = centre < 0.0 ? 0.0 : centre;
    low = min_of(static_cast<int64_t>(inside), source - 1);
    high = min_of(low + 1, source - 1);
    share = static_cast<float>(inside - static_cast<double>(low));
  }
};

VLA_INLINE Vec between(Vec low, Vec high, Vec share) { return fma(high, share, low * (splat(1.0f) - share)); }

void blend_rows(const ResizeArgs& r, int64_t out_row, float* to) {
  const Neighbours n(out_row, r.in_h, r.out_h);
  const int64_t row = r.in_w * r.channels;
  const float* low = r.x + n.low * row;
  const float* high = r.x + n.high * row;
  const Vec share = splat(n.share);
  over_columns(row, [&](int64_t c, auto part) {
    store(to + c, between(load(low + c, part), load(high + c, part), share), part);
  });
}

// Few channels are computed one by one, as a vector of them would be mostly empty.
VLA_INLINE void blend_pixels(const float* low, const float* high, float share, int64_t channels, float* y) {
  if (channels < Vec::kWidth / 2) {
    const float rest = 1.0f - share;
    for (int64_t c = 0; c < channels; ++c) y[c] = __builtin_fmaf(high[c], share, low[c] * rest);
    return;
  }
  const Vec shares = splat(share);
  over_columns(channels, [&](int64_t c, auto part) {
    store(y + c, between(load(low + c, part), load(high + c, part), shares), part);
  });
}

}  // namespace

void resize(const ResizeArgs& r, Range out_rows, float* scratch) {
  for (int64_t row = out_rows.begin; row < out_rows.end; ++row) {
    blend_rows(r, row, scratch);
    float* y = r.y + row * r.out_w * r.y_ld;
    for (int64_t x = 0; x < r.out_w; ++x) {
      const Neighbours n(x, r.in_w, r.out_w);
      blend_pixels(scratch + n.low * r.channels, scratch + n.high * r.channels, n.share, r.channels, y + x * r.y_ld);
    }
  }
}

}  // namespace vla::VLA_ISA
