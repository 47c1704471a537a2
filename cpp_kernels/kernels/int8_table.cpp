#include "kernels/int8_table.hpp"

#include "kernels/int8_tile.hpp"

namespace vla::VLA_ISA {

const Int8Table* int8_kernels() {
  static constexpr Int8Table table = {
      kInt8Name,          kInt8TileRows, kInt8TileCols,    int8_packed_bytes, int8_pack,           int8_rows_bytes,
      int8_quantize_rows, int8_linear,   int8_image_bytes, int8_largest,      int8_quantize_image, int8_conv2d,
      int8_winograd_packed_bytes, int8_winograd_pack, int8_winograd_scratch, int8_winograd,
  };
  return &table;
}

}  // namespace vla::VLA_ISA
