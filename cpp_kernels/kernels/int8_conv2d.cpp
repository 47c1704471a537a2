// An INT8 convolution as a matrix product whose left operand is never stored: the quantized image lies between the
// zeros of its padding, so that the patch of every output pixel can be read in place.
#include "kernels/int8_quantize.hpp"
#include "kernels/int8_table.hpp"
#include "kernels/int8_tile.hpp"

namespace vla::VLA_ISA {
namespace {

// What the image rows under a block of output rows may take of the second-level cache.
constexpr int64_t kBlockBytes = 256 * 1024;

VLA_INLINE int64_t padded_row(const Conv2dArgs& c) { return c.padded_w() * c.in_c; }

void fill_zeros(Quantized* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = kZeroPoint;
}

int64_t block_rows(const Conv2dArgs& c) {
  if (c.block_rows > 0) return ceil_div(c.block_rows, c.out_w);
  const int64_t row_bytes = padded_row(c) * static_cast<int64_t>(sizeof(Quantized));
  const int64_t overlap = (c.kernel_h - 1) * c.dilation + 1 - c.stride_h;
  return max_of(1, (kBlockBytes / row_bytes - overlap) / c.stride_h);
}

// The product of one panel with the patches of some output pixels.
void panel_pixels(const Conv2dArgs& c, Int8Input in, Range pixels, int64_t panel) {
  const auto* image = reinterpret_cast<const Quantized*>(in.values);
  const int64_t row_values = padded_row(c), col = panel * kInt8TileCols;
  Int8TileArgs t{nullptr, c.stride_w * c.in_c, c.kernel_h, c.dilation * row_values, 1, 0, 0,
                 Int8Panel(c.packed, 0, 0), in.scales, 0, nullptr, c.y_ld, min_of(kInt8TileCols, c.out_c - col), {}};
  if (c.dilation == 1) {
    t.groups = groups_of(c.kernel_w * c.in_c);
  } else {
    t.runs = c.kernel_w;
    t.run_stride = c.dilation * c.in_c;
    t.groups = groups_of(c.in_c);
  }
  t.panel = Int8Panel(c.packed, t.lines * t.runs * t.groups, panel);
  for (int64_t pixel = pixels.begin; pixel < pixels.end;) {
    const int64_t out_row = pixel / c.out_w, x0 = pixel - out_row * c.out_w;
    const EvenShares tiles(min_of(pixels.end, (out_row + 1) * c.out_w) - pixel, kInt8TileRows);
    t.a = image + out_row * c.stride_h * row_values + x0 * t.a_ld;
    for (int64_t i = 0; i < tiles.shares; ++i) {
      t.y = c.y + pixel * c.y_ld + col;
      t.epilogue = epilogue_at(c.epilogue, pixel, col);
      run_int8_tile(tiles.size(i), t);
      t.a += tiles.size(i) * t.a_ld;
      pixel += tiles.size(i);
    }
  }
}

}  // namespace

int64_t int8_image_bytes(const Conv2dArgs& c) {
  // The last group of the last patch may reach past the image, or the last vector of the last pixel.
  constexpr int64_t kBeyond = 64;
  return c.padded_h() * padded_row(c) * static_cast<int64_t>(sizeof(Quantized)) + kBeyond;
}

void int8_quantize_image(const Conv2dArgs& c, Range rows, Int8Input out) {
  const int64_t left = c.pad_left * c.in_c, values = c.in_w * c.in_c, row_values = padded_row(c);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    Quantized* to = reinterpret_cast<Quantized*>(out.values) + r * row_values;
    const int64_t y = r - c.pad_top;
    if (y < 0 || y >= c.in_h) {
      fill_zeros(to, row_values);
      continue;
    }
    fill_zeros(to, left);
    int8_quantize(c.x + y * values, values, out.scales[0], to + left);
    fill_zeros(to + left + values, row_values - left - values);
  }
}

void int8_conv2d(const Conv2dArgs& c, Int8Input in, Range rows, Range panels) {
  const int64_t step = block_rows(c) * c.out_w;
  for (int64_t pixel = rows.begin; pixel < rows.end;) {
    const int64_t end = min_of(rows.end, (pixel / c.out_w * c.out_w) + step);
    for (int64_t p = panels.begin; p < panels.end; ++p) panel_pixels(c, in, {pixel, end}, p);
    pixel = end;
  }
}

}  // namespace vla::VLA_ISA
