// Convolution as a matrix product whose left operand is never stored. In a height x width x channels
// image the patch of an output pixel is one adjacent run of kernel_w * in_c values per row of the filter,
// and the patches of neighbouring pixels start stride_w * in_c values apart: that is all a register tile
// needs to know. Where there is padding, the few image rows that a block of output rows sees are first
// copied between zeros, so that every patch is whole.
#include "kernels/copy.hpp"
#include "kernels/table.hpp"
#include "kernels/tile.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int64_t kStripFloats = 64 * 1024;  // what the copied rows may take of the second-level cache

// The image rows under a block of output rows, padded.
struct Strip {
  const float* at;  // the patch of output row 0 of the block, column 0
  int64_t row;      // floats per image row
};

VLA_INLINE int64_t strip_width(const Conv2dArgs& c) { return c.padded_w() * c.in_c; }

VLA_INLINE int64_t strip_rows(const Conv2dArgs& c, int64_t out_rows) {
  return (out_rows - 1) * c.stride_h + (c.kernel_h - 1) * c.dilation + 1;
}

// Output rows per block: as many as asked for, or as keep the strip within its share of the cache; at least one.
int64_t block_rows(const Conv2dArgs& c) {
  if (c.block_rows > 0) return min_of(c.out_h, ceil_div(c.block_rows, c.out_w));
  const int64_t fit = kStripFloats / strip_width(c) - strip_rows(c, 1);
  return max_of(1, min_of(c.out_h, fit / c.stride_h + 1));
}

Strip make_strip(const Conv2dArgs& c, int64_t out_row, int64_t out_rows, float* scratch) {
  const int64_t image_row = c.in_w * c.in_c;
  if (!c.padded()) return {c.x + out_row * c.stride_h * image_row, image_row};
  const int64_t width = strip_width(c), left = c.pad_left * c.in_c, right = c.pad_right * c.in_c;
  const int64_t first = out_row * c.stride_h - c.pad_top;
  for (int64_t i = 0; i < strip_rows(c, out_rows); ++i) {
    float* to = scratch + i * width;
    const int64_t y = first + i;
    if (y < 0 || y >= c.in_h) {
      clear(to, width);
      continue;
    }
    clear(to, left);
    copy(c.x + y * image_row, image_row, to + left);
    clear(to + left + image_row, right);
  }
  return {scratch, width};
}

// A part of k: `runs` runs of `run` values of each patch.
struct Part {
  int64_t first_k;  // place in the packed filter
  int64_t offset;   // from the patch's start in the strip
  int64_t runs, run, run_stride;
};

struct Block {
  const Conv2dArgs& c;
  Strip strip;
  int64_t out_row;  // the strip's first output row
  Range pixels;     // output pixels, numbered over the whole image
  Range panels;
};

template <typename W>
void panel_part(const Block& b, const Part& part, int64_t panel) {
  const Conv2dArgs& c = b.c;
  const auto* packed = reinterpret_cast<const W*>(c.packed);
  const int64_t k = c.kernel_h * c.kernel_w * c.in_c, col = panel * kTileCols, depth = part.runs * part.run;
  TileArgs t;
  t.a_ld = c.stride_w * c.in_c;
  t.runs = part.runs;
  t.run = part.run;
  t.run_stride = part.run_stride;
  const W* own = packed + col * k + part.first_k * kTileCols;
  set_panel(t, own);
  t.y_ld = c.y_ld;
  t.cols = min_of(kTileCols, c.out_c - col);
  t.accumulate = part.first_k > 0;
  const bool last = part.first_k + depth == k;
  clear_epilogue(t);
  const W* next = next_part(packed, k, b.panels, panel, part.first_k, depth, b.panels.begin);
  int64_t tiles_done = 0;
  for (int64_t pixel = b.pixels.begin; pixel < b.pixels.end;) {
    const int64_t row = pixel / c.out_w, x0 = pixel - row * c.out_w;
    const EvenShares tiles(min_of(b.pixels.end, (row + 1) * c.out_w) - pixel, kTileRows);
    t.a = b.strip.at + (row - b.out_row) * c.stride_h * b.strip.row + x0 * t.a_ld + part.offset;
    for (int64_t i = 0; i < tiles.shares; ++i) {
      const int64_t size = tiles.size(i);
      t.y = c.y + pixel * c.y_ld + col;
      t.upcoming = upcoming_for(tiles_done++, next, depth, own);
      if (last) set_epilogue(t, c.epilogue, pixel, col);
      run_tile(size, t);
      t.a += size * t.a_ld;
      pixel += size;
    }
  }
}

void all_panels(const Block& b, const Part& part) {
  const auto part_of = b.c.bf16 ? panel_part<Bf16> : panel_part<float>;
  for (int64_t p = b.panels.begin; p < b.panels.end; ++p) part_of(b, part, p);
}

// Takes k in parts of about kDepth. Runs that are short are taken several at a time, long ones in pieces.
void run_line(const Block& b, Part line) {
  if (line.run > kDepth) {
    const int64_t piece = round_up(ceil_div(line.run, ceil_div(line.run, kDepth)), 4);
    for (int64_t r = 0; r < line.runs; ++r) {
      for (int64_t at = 0; at < line.run; at += piece) {
        all_panels(b, {line.first_k + r * line.run + at, line.offset + r * line.run_stride + at, 1,
                       min_of(piece, line.run - at), 0});
      }
    }
    return;
  }
  const int64_t group = max_of(1, kDepth / line.run);
  for (int64_t r = 0; r < line.runs; r += group) {
    all_panels(b, {line.first_k + r * line.run, line.offset + r * line.run_stride, min_of(group, line.runs - r),
                   line.run, line.run_stride});
  }
}

void run_block(const Block& b) {
  const Conv2dArgs& c = b.c;
  if (c.dilation == 1) {  // the filter's columns are adjacent
    run_line(b, {0, 0, c.kernel_h, c.kernel_w * c.in_c, b.strip.row});
    return;
  }
  for (int64_t fy = 0; fy < c.kernel_h; ++fy) {
    run_line(b, {fy * c.kernel_w * c.in_c, fy * c.dilation * b.strip.row, c.kernel_w, c.in_c,
                 c.dilation * c.in_c});
  }
}

}  // namespace

int64_t conv2d_scratch(const Conv2dArgs& c) {
  return !c.padded() ? 0 : strip_rows(c, block_rows(c)) * strip_width(c);
}

void conv2d(const Conv2dArgs& c, Range rows, Range panels, float* scratch) {
  const int64_t step = block_rows(c);
  for (int64_t pixel = rows.begin; pixel < rows.end;) {
    const int64_t out_row = pixel / c.out_w;
    const int64_t out_rows = min_of(step, ceil_div(rows.end, c.out_w) - out_row);
    const int64_t end = min_of(rows.end, (out_row + out_rows) * c.out_w);
    run_block({c, make_strip(c, out_row, out_rows, scratch), out_row, {pixel, end}, panels});
    pixel = end;
  }
}

}  // namespace vla::VLA_ISA
