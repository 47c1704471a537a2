#include "kernels/table.hpp"

#include "kernels/tile.hpp"

namespace vla::VLA_ISA {

const KernelTable* kernels() {
  static constexpr KernelTable table = {
      kIsaName,      Vec::kWidth,          kTileRows,        kTileCols,       packed_size, pack_weights,
      pack_bf16,
      linear,        linear_rows,          pack_blocks,     blocks_scratch,   linear_blocks,   embed_blocks,
      strassen_fits, strassen_packed_size, strassen_pack,   strassen_scratch, strassen,
      conv2d_scratch,       conv2d,           conv2d_patches,   winograd_packed_size,         winograd_pack,
      winograd_scratch,  winograd,         max_pool2d,       attention_packed_size,        attention_scratch,
      attention_pack,    attention,        attention_unpacked_fits,      attention_unpacked_scratch,   attention_unpacked,
      attention_scores_size,        attention_scores, attention_softmax,
      attention_values,  key_value_size,   append,           cached_attention_scratch,     cached_attention,
      layer_norm,       rms_norm,        group_norm_moments, group_norm_factors,
      group_norm,        softmax,          rotary,          transpose,   resize,
      resample,
      binary,            pointwise,
      mean_rows,     lookup_u8,            embedding,        fma_peak,        read_all,
  };
  return &table;
}

}  // namespace vla::VLA_ISA
