#include "runtime/executor.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "runtime/engine.hpp"
#include "runtime/int8_input.hpp"

namespace vla {
namespace {

// Splits `units` (rows, pixels) into chunks and calls the kernel on each range.
template <typename Kernel>
void for_ranges(const Team& team, int64_t units, int64_t chunks, Kernel kernel) {
  team.runner.run(chunks, [&](int64_t chunk, int) noexcept { kernel(slice_of(units, chunks, chunk)); });
}

void execute(const LinearRecord& op, const Team& team) {
  const auto kernel = op.packed ? team.kernels.linear : team.kernels.linear_rows;
  team.runner.run(op.grid.chunks(), [&](int64_t chunk, int) noexcept {
    kernel(op.args, op.grid.row_range(chunk), op.grid.panel_range(chunk));
  });
}

void execute(const BlockLinearRecord& op, const Team& team) {
  team.runner.run(op.grid.chunks(), [&](int64_t chunk, int thread) noexcept {
    team.kernels.linear_blocks(op.form, op.args, op.grid.row_range(chunk), op.grid.panel_range(chunk),
                               team.workspace.of(thread));
  });
}

void execute(const StrassenRecord& op, const Team& team) {
  team.runner.run(op.grid.chunks(), [&](int64_t chunk, int thread) noexcept {
    team.kernels.strassen(op.args, op.grid.row_range(chunk), op.grid.panel_range(chunk), team.workspace.of(thread));
  });
}

void execute(const Conv2dRecord& op, const Team& team) {
  team.runner.run(op.grid.chunks(), [&](int64_t chunk, int thread) noexcept {
    team.kernels.conv2d(op.args, op.grid.row_range(chunk), op.grid.panel_range(chunk), team.workspace.of(thread));
  });
}

void execute(const FlatConv2dRecord& op, const Team& team) {
  LinearArgs product = op.product;
  product.x = team.workspace.shared;
  for_ranges(team, product.m, op.gather_chunks,
             [&](Range pixels) { team.kernels.conv2d_patches(op.args, pixels, team.workspace.shared); });
  team.runner.run(op.grid.chunks(), [&](int64_t chunk, int) noexcept {
    team.kernels.linear(product, op.grid.row_range(chunk), op.grid.panel_range(chunk));
  });
}

void execute(const WinogradRecord& op, const Team& team) {
  team.runner.run(op.grid.chunks(), [&](int64_t chunk, int thread) noexcept {
    team.kernels.winograd(op.form, op.args, op.grid.row_range(chunk), op.grid.panel_range(chunk),
                          team.workspace.of(thread));
  });
}

void execute(const Int8LinearRecord& op, const Team& team) {
  const Int8Input input = int8_input(team.workspace.shared, op.args.m);
  for_ranges(team, op.args.m, op.quantize_chunks,
             [&](Range rows) { team.int8.quantize_rows(op.args, rows, input); });
  team.runner.run(op.grid.chunks(), [&](int64_t chunk, int) noexcept {
    team.int8.linear(op.args, input, op.grid.row_range(chunk), op.grid.panel_range(chunk));
  });
}

// The scale of the image, from the largest value of each of its parts, which are kept behind it meanwhile.
void find_int8_scale(const Int8Conv2dRecord& op, const Team& team, float* scale) {
  const int64_t values = op.args.in_h * op.args.in_w * op.args.in_c;
  float* largest = scale + 1;
  team.runner.run(op.quantize_chunks, [&](int64_t chunk, int) noexcept {
    largest[chunk] = team.int8.largest(op.args.x, slice_of(values, op.quantize_chunks, chunk));
  });
  float most = 0.0f;
  for (int64_t chunk = 0; chunk < op.quantize_chunks; ++chunk) {
    if (largest[chunk] > most || std::isnan(largest[chunk])) most = largest[chunk];
  }
  *scale = most / static_cast<float>(kInt8Limit);
}

void execute(const Int8Conv2dRecord& op, const Team& team) {
  const Int8Input input = int8_input(team.workspace.shared, 1 + op.quantize_chunks);
  find_int8_scale(op, team, input.scales);
  for_ranges(team, op.args.padded_h(), op.quantize_chunks,
             [&](Range rows) { team.int8.quantize_image(op.args, rows, input); });
  team.runner.run(op.grid.chunks(), [&](int64_t chunk, int thread) noexcept {
    const Range rows = op.grid.row_range(chunk), panels = op.grid.panel_range(chunk);
    if (op.winograd) {
      team.int8.winograd(op.args, input, rows, panels, team.workspace.of(thread));
    } else {
      team.int8.conv2d(op.args, input, rows, panels);
    }
  });
}

void execute(const MaxPool2dRecord& op, const Team& team) {
  for_ranges(team, op.args.out_h, op.chunks, [&](Range rows) { team.kernels.max_pool2d(op.args, rows); });
}

// Calls the kernel for all heads with each part of the queries.
template <typename Kernel>
void for_queries(const AttentionRecord& op, const Team& team, Kernel kernel) {
  const int64_t tiles = ceil_div(op.args.queries, op.tile_rows);
  team.runner.run(op.args.heads * op.query_chunks, [&](int64_t chunk, int thread) noexcept {
    const Range part = slice_of(tiles, op.query_chunks, chunk % op.query_chunks);
    const Range queries{part.begin * op.tile_rows, std::min(part.end * op.tile_rows, op.args.queries)};
    kernel(chunk / op.query_chunks, queries, thread);
  });
}

int64_t kv_head_of(const AttentionRecord& op, int64_t head) { return head / (op.args.heads / op.args.kv_heads); }

void execute_materialized(const AttentionRecord& op, const Team& team) {
  float* const packed_heads = team.workspace.shared;
  const auto packed_kv = [&](int64_t kv_head) { return packed_heads + kv_head * op.head_stride; };
  const auto packed = [&](int64_t head) { return packed_kv(kv_head_of(op, head)); };
  const auto of = [&](int64_t head) { return packed_kv(op.args.kv_heads) + head * op.scores_stride; };
  for_ranges(team, op.args.kv_heads, op.pack_chunks, [&](Range heads) {
    for (int64_t h = heads.begin; h < heads.end; ++h) team.kernels.attention_pack(op.args, h, packed_kv(h));
  });
  for_queries(op, team, [&](int64_t head, Range queries, int) {
    team.kernels.attention_scores(op.args, head, queries, packed(head), of(head));
  });
  for_queries(op, team, [&](int64_t head, Range queries, int) {
    team.kernels.attention_softmax(op.args, head, queries, of(head));
  });
  for_queries(op, team, [&](int64_t head, Range queries, int) {
    team.kernels.attention_values(op.args, head, queries, packed(head), of(head));
  });
}

void execute(const AttentionRecord& op, const Team& team) {
  if (op.method == AttentionMethod::kMaterialized) return execute_materialized(op, team);
  if (!op.packs) {
    return for_queries(op, team, [&](int64_t head, Range queries, int thread) {
      team.kernels.attention_unpacked(op.args, head, queries, team.workspace.of(thread));
    });
  }
  // Each thread packs keys and values for itself, into a cache of its own, when it comes to another key-value head: its
  // chunks are neighbours, so that few heads are packed twice, and nobody waits for the packing of others.
  auto* at_hand = reinterpret_cast<PackedHead*>(team.workspace.shared);
  std::fill_n(at_hand, op.threads, PackedHead());
  for_queries(op, team, [&](int64_t head, Range queries, int thread) {
    float* packed = team.workspace.of(thread);
    if (at_hand[thread].kv_head != kv_head_of(op, head)) {
      at_hand[thread].kv_head = kv_head_of(op, head);
      team.kernels.attention_pack(op.args, kv_head_of(op, head), packed);
    }
    team.kernels.attention(op.args, head, queries, packed, packed + op.head_stride);
  });
}

void execute(const NormRecord& op, const Team& team) {
  const auto kernel = op.norm == Norm::kLayer ? team.kernels.layer_norm : team.kernels.rms_norm;
  for_ranges(team, op.rows, op.chunks, [&](Range rows) { kernel(op.args, rows); });
}

void execute(const GroupNormRecord& op, const Team& team) {
  float* moments = team.workspace.shared;
  float* factors = moments + op.args.moments_size();
  for_ranges(team, op.args.pieces(), op.piece_chunks,
             [&](Range pieces) { team.kernels.group_norm_moments(op.args, pieces, moments); });
  team.kernels.group_norm_factors(op.args, moments, factors);
  for_ranges(team, op.args.rows, op.row_chunks,
             [&](Range rows) { team.kernels.group_norm(op.args, rows, factors); });
}

void execute(const SoftmaxRecord& op, const Team& team) {
  for_ranges(team, op.rows, op.chunks, [&](Range rows) { team.kernels.softmax(op.args, rows); });
}

void execute(const RotaryRecord& op, const Team& team) {
  for_ranges(team, op.rows, op.chunks, [&](Range rows) { team.kernels.rotary(op.args, rows); });
}

void execute(const TransposeRecord& op, const Team& team) {
  for_ranges(team, op.args.bands(), op.chunks, [&](Range bands) { team.kernels.transpose(op.args, bands); });
}

void execute(const ResizeRecord& op, const Team& team) {
  team.runner.run(op.chunks, [&](int64_t chunk, int thread) noexcept {
    team.kernels.resize(op.args, slice_of(op.args.out_h, op.chunks, chunk), team.workspace.of(thread));
  });
}

void execute(const ResampleRecord& op, const Team& team) {
  for_ranges(team, op.args.lines(), op.chunks, [&](Range lines) { team.kernels.resample(op.args, lines); });
}

void execute(const CopyRecord& op, const Team& team) {
  for_ranges(team, op.rows, op.chunks, [&](Range rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      std::memcpy(op.y + row * op.y_ld, op.x + row * op.x_ld, static_cast<std::size_t>(op.bytes));
    }
  });
}

void execute(const BinaryRecord& op, const Team& team) {
  for_ranges(team, op.rows, op.chunks, [&](Range rows) { team.kernels.binary(op.args, rows); });
}

void execute(const PointwiseRecord& op, const Team& team) {
  for_ranges(team, op.rows, op.chunks, [&](Range rows) { team.kernels.pointwise(op.args, rows); });
}

void execute(const MeanRowsRecord& op, const Team& team) {
  team.kernels.mean_rows(op.x, op.x_ld, op.rows, op.y, Range{0, op.cols});
}

void execute(const LookupRecord& op, const Team& team) {
  for_ranges(team, op.pixels, op.chunks,
             [&](Range pixels) { team.kernels.lookup_u8(op.x, op.table, op.channels, op.y, pixels); });
}

void check_ids(const EmbeddingArgs& args, int64_t rows, int64_t table_rows) {
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t id = args.ids[row];
    if (id < 0 || id >= table_rows) {
      throw RunError("index " + std::to_string(id) + " at position " + std::to_string(row) +
                     " is outside the table of " + std::to_string(table_rows) + " rows");
    }
  }
}

void execute(const BlockEmbeddingRecord& op, const Team& team) {
  check_ids(op.args, op.rows, op.table_rows);
  team.runner.run(op.chunks, [&](int64_t chunk, int thread) noexcept {
    team.kernels.embed_blocks(op.form, op.args, slice_of(op.rows, op.chunks, chunk), team.workspace.of(thread));
  });
}

void execute(const EmbeddingRecord& op, const Team& team) {
  check_ids(op.args, op.rows, op.table_rows);
  for_ranges(team, op.rows, op.chunks, [&](Range rows) { team.kernels.embedding(op.args, rows); });
}

// Throws RunError for one that is no row of the state, or not beyond the one before it where they are to `rise`.
void check_positions(const int32_t* positions, int64_t count, int64_t rows, bool rise) {
  const auto at = [&](int64_t i) { return "position " + std::to_string(positions[i]) + " of row " + std::to_string(i); };
  for (int64_t i = 0; i < count; ++i) {
    if (positions[i] < 0 || positions[i] >= rows) {
      throw RunError(at(i) + " is outside the state of " + std::to_string(rows) + " rows");
    }
    if (rise && i > 0 && positions[i] <= positions[i - 1]) {
      throw RunError(at(i) + " follows " + std::to_string(positions[i - 1]) + ", expected a larger one");
    }
  }
}

void execute(const AppendRecord& op, const Team& team) {
  check_positions(op.args.positions, op.rows, op.args.shape.rows, true);
  for_ranges(team, op.rows, op.chunks, [&](Range rows) { team.kernels.append(op.args, rows); });
}

void execute(const CachedAttentionRecord& op, const Team& team) {
  check_positions(op.args.positions, op.args.queries, op.args.shape.rows, false);
  const int64_t units = op.args.units(), tiles = ceil_div(units, op.tile_rows);
  team.runner.run(op.args.shape.kv_heads * op.unit_chunks, [&](int64_t chunk, int thread) noexcept {
    const Range part = slice_of(tiles, op.unit_chunks, chunk % op.unit_chunks);
    const Range range{part.begin * op.tile_rows, std::min(part.end * op.tile_rows, units)};
    team.kernels.cached_attention(op.args, chunk / op.unit_chunks, range, team.workspace.of(thread));
  });
}

}  // namespace

void execute(const Op& op, const Team& team) {
  try {
    std::visit([&](const auto& record) { execute(record, team); }, op.record);
  } catch (const RunError& error) {
    throw RunError("op '" + op.label + "': " + error.what());
  }
}

}  // namespace vla
