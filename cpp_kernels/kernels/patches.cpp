// The left operand of a convolution as a matrix product, stored: the patch of every output pixel.
#include "kernels/copy.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

// `count` adjacent pixels of an image row from column x0, zeros where they are outside of the image.
VLA_INLINE void gather_run(const Conv2dArgs& c, const float* row, int64_t x0, int64_t count, float* to) {
  const int64_t before = min_of(count, max_of(0, -x0));
  const int64_t inside = max_of(0, min_of(count, c.in_w - x0) - before);
  clear(to, before * c.in_c);
  copy(row + (x0 + before) * c.in_c, inside * c.in_c, to + before * c.in_c);
  clear(to + (before + inside) * c.in_c, (count - before - inside) * c.in_c);
}

}  // namespace

void conv2d_patches(const Conv2dArgs& c, Range pixels, float* patches) {
  const int64_t line = c.kernel_w * c.in_c;
  const int64_t run = c.dilation == 1 ? c.kernel_w : 1;  // the pixels that are adjacent in the image too
  float* to = patches + pixels.begin * c.kernel_h * line;
  for (int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel) {
    const int64_t out_y = pixel / c.out_w, x0 = (pixel - out_y * c.out_w) * c.stride_w - c.pad_left;
    for (int64_t fy = 0; fy < c.kernel_h; ++fy, to += line) {
      const int64_t y = out_y * c.stride_h - c.pad_top + fy * c.dilation;
      if (y < 0 || y >= c.in_h) {
        clear(to, line);
        continue;
      }
      const float* row = c.x + y * c.in_w * c.in_c;
      for (int64_t fx = 0; fx < c.kernel_w; fx += run) {
        gather_run(c, row, x0 + fx * c.dilation, run, to + fx * c.in_c);
      }
    }
  }
}

}  // namespace vla::VLA_ISA
