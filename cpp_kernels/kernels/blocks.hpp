// Panels of weights in blocks, and how their values come out of them.
//
// A panel holds kTileCols columns. For each block of kBlockValues k there are the scales of all columns, their least
// values where the form has them, and then their integers: of 8 bits, those of all columns for each k; of 4 bits, those
// of all columns for each eight k, which fill 32 bits of a column. So a vector of columns is a vector of the panel, and
// a panel has as many bytes as its blocks had.
#pragma once

#include "kernels/lanes.hpp"
#include "kernels/tile.hpp"

namespace vla::VLA_ISA {

constexpr int64_t kHalves = kTileCols * static_cast<int64_t>(sizeof(Half));  // bytes of one number per column

VLA_INLINE int64_t panel_block_bytes(BlockForm form) { return block_bytes(form) * kTileCols; }
VLA_INLINE int64_t panel_bytes(BlockForm form, int64_t k) { return k / kBlockValues * panel_block_bytes(form); }

// What the integers of a block are multiplied with, and what is added, for V adjacent vectors of columns of panels
// `panel` bytes apart.
template <BlockForm F, int V>
struct BlockScales {
  BlockScales<F, V - 1> front;
  Vec scale, least;

  VLA_INLINE void load(const uint8_t* block, int64_t panel) {
    front.load(block, panel);
    constexpr int kVec = (V - 1) % kTileVecs * Vec::kWidth;
    const auto* halves = reinterpret_cast<const Half*>(block + (V - 1) / kTileVecs * panel);
    scale = vla::VLA_ISA::load(halves + kVec);
    if constexpr (F == BlockForm::kQ4_0) least = scale * splat(-8.0f);
    if constexpr (F == BlockForm::kQ4_1) least = vla::VLA_ISA::load(halves + kTileCols + kVec);
  }
};

template <BlockForm F>
struct BlockScales<F, 0> {
  VLA_INLINE void load(const uint8_t*, int64_t) {}
};

// The integers of V vectors of columns for four adjacent k of 8 bits, or eight of 4 bits: where they are, or themselves.
template <BlockForm F, int V>
struct BlockIntegers {
  BlockIntegers<F, V - 1> front;
  Nibbles nibbles;

  static constexpr int kAdjacent = 8;
  VLA_INLINE void load(const uint8_t* group, int64_t panel) {
    front.load(group, panel);
    constexpr int kVec = (V - 1) % kTileVecs * Vec::kWidth * 4;
    nibbles = load_nibbles(group + (V - 1) / kTileVecs * panel + kVec);
  }
  template <int K>
  VLA_INLINE void expand(const BlockScales<F, V>& scales, Lanes<V>& lanes) const {
    front.template expand<K>(scales.front, lanes.front);
    lanes.back = fma(nibble<K>(nibbles), scales.scale, scales.least);
  }
};

template <BlockForm F>
struct BlockIntegers<F, 0> {
  VLA_INLINE void load(const uint8_t*, int64_t) {}
  template <int K>
  VLA_INLINE void expand(const BlockScales<F, 0>&, Lanes<0>&) const {}
};

template <int V>
struct BlockIntegers<BlockForm::kQ8_0, V> {
  const int8_t* group;
  int64_t panel;

  static constexpr int kAdjacent = 4;
  VLA_INLINE void load(const uint8_t* at, int64_t panel_stride) {
    group = reinterpret_cast<const int8_t*>(at);
    panel = panel_stride;
  }
  template <int K, int W = V>
  VLA_INLINE void expand(const BlockScales<BlockForm::kQ8_0, W>& scales, Lanes<W>& lanes) const {
    if constexpr (W > 0) {
      expand<K, W - 1>(scales.front, lanes.front);
      constexpr int kVec = (W - 1) % kTileVecs * Vec::kWidth;
      lanes.back = vla::VLA_ISA::load(group + (W - 1) / kTileVecs * panel + K * kTileCols + kVec) * scales.scale;
    }
  }
};

template <BlockForm F>
constexpr int64_t kHeadBytes = F == BlockForm::kQ4_1 ? 2 * kHalves : kHalves;
// Bytes of a panel's integers for kAdjacent k.
template <BlockForm F>
constexpr int64_t kGroupBytes = 4 * kTileCols;

// packed[k][kTileCols] = the values of the blocks [first, end) of a panel.
void expand_blocks(BlockForm form, const uint8_t* panel, Range blocks, float* to);

}  // namespace vla::VLA_ISA
