#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

struct Window {
  Range rows, cols;  // of the input, clipped to the image
};

template <typename Part>
VLA_INLINE Vec window_max(const MaxPool2dArgs& a, const Window& w, int64_t channel, Part part) {
  Vec m = splat(-__builtin_inff());
  for (int64_t y = w.rows.begin; y < w.rows.end; ++y) {
    const float* p = a.x + (y * a.in_w + w.cols.begin) * a.channels + channel;
    for (int64_t x = w.cols.begin; x < w.cols.end; ++x, p += a.channels) m = max(m, load(p, part));
  }
  return m;
}

Range clipped(int64_t out, int64_t stride, int64_t padding, int64_t kernel, int64_t size) {
  const int64_t first = out * stride - padding;
  return {max_of(0, first), min_of(size, first + kernel)};
}

}  // namespace

void max_pool2d(const MaxPool2dArgs& a, Range out_rows) {
  for (int64_t oy = out_rows.begin; oy < out_rows.end; ++oy) {
    for (int64_t ox = 0; ox < a.out_w; ++ox) {
      const Window w = {clipped(oy, a.stride, a.padding, a.kernel, a.in_h),
                        clipped(ox, a.stride, a.padding, a.kernel, a.in_w)};
      float* y = a.y + (oy * a.out_w + ox) * a.channels;
      over_columns(a.channels, [&](int64_t c, auto part) { store(y + c, window_max(a, w, c, part), part); });
    }
  }
}

}  // namespace vla::VLA_ISA
