// INT8 (W8A8) linear layers and convolutions: what they compute, and their entry points, one table per variant.
//
// Symmetric quantization: q = round_half_even(value / scale) in [-127, 127] with scale = max|value| / 127; weights
// have one scale per output channel, the input of a linear layer one per row, that of a convolution one in all.
//   y = epilogue(float(exact 32-bit sum of products) * (input scale * weight scale))
// Every variant gives the same sums. Where a scale is zero, so are its quantized values.
#pragma once

#include "kernels/kernels.hpp"

namespace vla {

constexpr int64_t kInt8Limit = 127;
// The longest sum of products that 32 bits hold whatever its terms.
constexpr int64_t kInt8MaxDepth = INT32_MAX / (kInt8Limit * kInt8Limit);

constexpr int64_t kInt8WinogradSide = 4;

// The k weights of an output channel, as runs of adjacent input values: one run for a linear layer, one per row of
// the filter for a convolution, or one per place of the filter where it is dilated.
struct Int8Runs {
  int64_t runs = 1;
  int64_t run = 0;
};

// A quantized input: the rows of a linear layer, or an image between the zeros of its padding.
struct Int8Input {
  std::byte* values = nullptr;  // in the form and layout of the variant
  float* scales = nullptr;      // one per row, or one
};

// LinearArgs and Conv2dArgs are those of the fp32 kernels; `packed` is what `pack` wrote.
struct Int8Table {
  const char* name;   // "portable", "avx2", "avxvnni", "avx512", "avx512vnni", "neon", "neondot"
  int64_t tile_rows;  // register tile, as in KernelTable
  int64_t tile_cols;

  // Weights [n][runs][run] in panels of tile_cols channels, with their scales.
  int64_t (*packed_bytes)(int64_t n, Int8Runs runs);
  void (*pack)(const float* w, int64_t n, Int8Runs runs, std::byte* packed, Range panels);

  int64_t (*rows_bytes)(int64_t m, int64_t k);
  void (*quantize_rows)(const LinearArgs&, Range rows, Int8Input out);
  void (*linear)(const LinearArgs&, Int8Input in, Range rows, Range panels);

  int64_t (*image_bytes)(const Conv2dArgs&);
  // max|x|; no number where a value is infinite or none, so that neither are the scale and the results.
  float (*largest)(const float* x, Range values);
  // Rows of the padded image; the scale is there already.
  void (*quantize_image)(const Conv2dArgs&, Range rows, Int8Input out);
  void (*conv2d)(const Conv2dArgs&, Int8Input in, Range rows, Range panels);

  // The same sums for 3x3 filters [out_c][3][3][in_c] with stride 1 by Winograd's method on tiles of kInt8WinogradSide
  // squared output pixels. Null where products are of bytes, which the transformed values do not fit. Scratch, in
  // floats, is for one thread.
  int64_t (*winograd_packed_bytes)(int64_t out_c, int64_t in_c);
  void (*winograd_pack)(const float* w, int64_t out_c, int64_t in_c, std::byte* packed, Range panels);
  int64_t (*winograd_scratch)(const Conv2dArgs&);
  void (*winograd)(const Conv2dArgs&, Int8Input in, Range tiles, Range panels, float* scratch);
};

}  // namespace vla
