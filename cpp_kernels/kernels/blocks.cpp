// Weights in blocks: into panels, and out of them.
#include "kernels/blocks.hpp"

#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

// Where the integers of a block begin, among its own bytes and among the panel's.
struct Heads {
  int64_t own, panel;
};

VLA_INLINE Heads heads_of(BlockForm form) {
  const int64_t numbers = form == BlockForm::kQ4_1 ? 2 : 1;
  return {numbers * static_cast<int64_t>(sizeof(Half)), numbers * kHalves};
}

// One column's block, of which `from` are the bytes.
void pack_block(BlockForm form, const uint8_t* from, int64_t column, uint8_t* panel) {
  const Heads heads = heads_of(form);
  for (int64_t at = 0; at < heads.own; at += 2) {
    __builtin_memcpy(panel + at / 2 * kHalves + 2 * column, from + at, sizeof(Half));
  }
  const uint8_t* q = from + heads.own;
  uint8_t* to = panel + heads.panel;
  if (form == BlockForm::kQ8_0) {
    for (int64_t k = 0; k < kBlockValues; ++k) to[k * kTileCols + column] = q[k];
    return;
  }
  const auto value = [&](int64_t k) { return k < kBlockValues / 2 ? q[k] & 15 : q[k - kBlockValues / 2] >> 4; };
  for (int64_t k = 0; k < kBlockValues; k += 2) {
    to[(k / 8 * kTileCols + column) * 4 + k % 8 / 2] = static_cast<uint8_t>(value(k) | value(k + 1) << 4);
  }
}

// Stores the values for kAdjacent k from the K-th on.
template <int K, BlockForm F>
VLA_INLINE void store_values(const BlockIntegers<F, kTileVecs>& integers, const BlockScales<F, kTileVecs>& scales,
                             float* to) {
  if constexpr (K < BlockIntegers<F, kTileVecs>::kAdjacent) {
    Lanes<kTileVecs> lanes;
    integers.template expand<K>(scales, lanes);
    lanes.store(to + K * kTileCols);
    store_values<K + 1>(integers, scales, to);
  }
}

template <BlockForm F>
void expand_panel(const uint8_t* panel, Range blocks, float* to) {
  using Integers = BlockIntegers<F, kTileVecs>;
  const uint8_t* block = panel + blocks.begin * panel_block_bytes(F);
  for (int64_t b = blocks.begin; b < blocks.end; ++b, block += panel_block_bytes(F)) {
    BlockScales<F, kTileVecs> scales;
    scales.load(block, 0);
    for (int64_t g = 0; g < kBlockValues / Integers::kAdjacent; ++g, to += Integers::kAdjacent * kTileCols) {
      Integers integers;
      integers.load(block + kHeadBytes<F> + g * kGroupBytes<F>, 0);
      store_values<0>(integers, scales, to);
    }
  }
}

}  // namespace

void pack_blocks(BlockForm form, const std::byte* blocks, int64_t n, int64_t k, std::byte* packed, Range panels) {
  const int64_t per_row = k / kBlockValues, bytes = block_bytes(form);
  const auto* from = reinterpret_cast<const uint8_t*>(blocks);
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    auto* panel = reinterpret_cast<uint8_t*>(packed) + p * panel_bytes(form, k);
    const int64_t first = p * kTileCols, columns = min_of(kTileCols, n - first);
    if (columns < kTileCols) __builtin_memset(panel, 0, static_cast<size_t>(panel_bytes(form, k)));
    for (int64_t b = 0; b < per_row; ++b, panel += panel_block_bytes(form)) {
      for (int64_t c = 0; c < columns; ++c) {
        pack_block(form, from + ((first + c) * per_row + b) * bytes, c, panel);
      }
    }
  }
}

int64_t blocks_scratch(int64_t k) { return min_of(k, linear_depth(k)) * kTileCols; }

void expand_blocks(BlockForm form, const uint8_t* panel, Range blocks, float* to) {
  switch (form) {
    case BlockForm::kQ8_0:
      return expand_panel<BlockForm::kQ8_0>(panel, blocks, to);
    case BlockForm::kQ4_0:
      return expand_panel<BlockForm::kQ4_0>(panel, blocks, to);
    case BlockForm::kQ4_1:
      return expand_panel<BlockForm::kQ4_1>(panel, blocks, to);
  }
}

void embed_blocks(BlockForm form, const EmbeddingArgs& e, Range rows, float* scratch) {
  const int64_t depth = linear_depth(e.cols);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t id = e.ids[row];
    const auto* panel = reinterpret_cast<const uint8_t*>(e.table) + id / kTileCols * panel_bytes(form, e.cols);
    for (int64_t k0 = 0; k0 < e.cols; k0 += depth) {
      const int64_t end = min_of(e.cols, k0 + depth);
      expand_blocks(form, panel, {k0 / kBlockValues, end / kBlockValues}, scratch);
      for (int64_t k = k0; k < end; ++k) e.y[row * e.y_ld + k] = scratch[(k - k0) * kTileCols + id % kTileCols];
    }
  }
}

}  // namespace vla::VLA_ISA
