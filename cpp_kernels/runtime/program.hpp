// The compiled form of a policy's part: a flat list of operation records over one arena.
//
// Records hold addresses that were checked when the program was built, so running one checks nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernels/kernels.hpp"
#include "runtime/arena.hpp"
#include "runtime/block_weights.hpp"
#include "runtime/constants.hpp"
#include "runtime/int8_weights.hpp"
#include "runtime/key_values.hpp"
#include "runtime/partition.hpp"

namespace vla {

struct LinearRecord {
  LinearArgs args;
  bool packed = true;  // or weights row by row
  Grid grid;
};

// A linear layer of weights in blocks.
struct BlockLinearRecord {
  LinearArgs args;
  BlockForm form = BlockForm::kQ8_0;
  Grid grid;
};

// A linear layer by Strassen's method; the grid's rows and panels are pairs.
struct StrassenRecord {
  LinearArgs args;
  Grid grid;
};

struct Conv2dRecord {
  Conv2dArgs args;
  Grid grid;
};

// A convolution as a linear layer of patches, which are all gathered first.
struct FlatConv2dRecord {
  Conv2dArgs args;
  int64_t gather_chunks = 1;
  LinearArgs product;  // of patches in the shared scratch memory
  Grid grid;
};

// A convolution by Winograd's method; the grid's rows are its tiles.
struct WinogradRecord {
  Conv2dArgs args;
  WinogradForm form;
  Grid grid;
};

struct MaxPool2dRecord {
  MaxPool2dArgs args;
  int64_t chunks = 1;
};

// With a few scores in memory at a time, or all of them at once.
enum class AttentionMethod : int32_t { kFused = 0, kMaterialized = 1 };

// The key-value head that a thread has packed, in a cache line of its own.
struct alignas(kAlignment) PackedHead {
  int64_t kv_head = -1;
};

struct AttentionRecord {
  AttentionArgs args;
  AttentionMethod method = AttentionMethod::kFused;
  bool packs = true;       // keys and values; else they are met where they lie
  int64_t tile_rows = 1;  // queries whose parts are begun at multiples of it
  int threads = 1;
  int64_t head_stride = 0;    // floats of packed keys and values per key-value head
  int64_t scores_stride = 0;  // floats of scores per head, where they are materialized
  int64_t pack_chunks = 1;  // where they are packed by all threads beforehand
  int64_t query_chunks = 1;  // per head
};

enum class Norm : int32_t { kLayer = 0, kRms = 1 };

struct NormRecord {
  NormArgs args;
  Norm norm = Norm::kLayer;
  int64_t rows = 0;
  int64_t chunks = 1;
};

struct BinaryRecord {
  BinaryArgs args;
  int64_t rows = 0;
  int64_t chunks = 1;
};

struct GroupNormRecord {
  GroupNormArgs args;
  int64_t piece_chunks = 1;
  int64_t row_chunks = 1;
};

struct SoftmaxRecord {
  SoftmaxArgs args;
  int64_t rows = 0;
  int64_t chunks = 1;
};

struct RotaryRecord {
  RotaryArgs args;
  int64_t rows = 0;
  int64_t chunks = 1;
};

struct TransposeRecord {
  TransposeArgs args;
  int64_t chunks = 1;
};

struct ResizeRecord {
  ResizeArgs args;
  int64_t chunks = 1;
};

struct ResampleRecord {
  ResampleArgs args;
  int64_t chunks = 1;
};

// Rows of bytes as they are.
struct CopyRecord {
  const std::byte* x = nullptr;
  int64_t x_ld = 0;
  std::byte* y = nullptr;
  int64_t y_ld = 0;
  int64_t rows = 0;
  int64_t bytes = 0;  // of a row
  int64_t chunks = 1;
};

// Activations, FiLM and copies.
struct PointwiseRecord {
  PointwiseArgs args;
  int64_t rows = 0;
  int64_t chunks = 1;
};

struct MeanRowsRecord {
  const float* x = nullptr;
  int64_t x_ld = 0;
  int64_t rows = 0;
  float* y = nullptr;
  int64_t cols = 0;
};

struct LookupRecord {
  const uint8_t* x = nullptr;
  const float* table = nullptr;
  int64_t channels = 0;
  float* y = nullptr;
  int64_t pixels = 0;
  int64_t chunks = 1;
};

struct EmbeddingRecord {
  EmbeddingArgs args;
  int64_t table_rows = 0;
  int64_t rows = 0;
  int64_t chunks = 1;
};

struct AppendRecord {
  AppendArgs args;
  int64_t rows = 0;
  int64_t chunks = 1;
};

struct CachedAttentionRecord {
  CachedAttentionArgs args;
  int64_t tile_rows = 1;
  int64_t unit_chunks = 1;  // per key-value head
};

// Rows of a table in blocks.
struct BlockEmbeddingRecord {
  EmbeddingArgs args;
  BlockForm form = BlockForm::kQ8_0;
  int64_t table_rows = 0;
  int64_t rows = 0;
  int64_t chunks = 1;
};

// An INT8 linear layer; its grids are for the product.
struct Int8LinearRecord {
  LinearArgs args;
  int64_t quantize_chunks = 1;
  Grid grid;
};

// An INT8 convolution; by Winograd's method, rows of the grid are tiles.
struct Int8Conv2dRecord {
  Conv2dArgs args;
  bool winograd = false;
  int64_t quantize_chunks = 1;
  Grid grid;
};

using Record =
    std::variant<Int8LinearRecord, Int8Conv2dRecord, LinearRecord, StrassenRecord, Conv2dRecord, FlatConv2dRecord,
                 WinogradRecord, MaxPool2dRecord, AttentionRecord, NormRecord, GroupNormRecord, SoftmaxRecord, RotaryRecord,
                 TransposeRecord, ResizeRecord, ResampleRecord, BinaryRecord, PointwiseRecord, CopyRecord, MeanRowsRecord, LookupRecord,
                 EmbeddingRecord, AppendRecord, CachedAttentionRecord, BlockLinearRecord, BlockEmbeddingRecord>;

struct Op {
  std::string label;
  Record record;
  int branch = -1;  // of the section it is in, if in any
};

// Operations [begin, end) in branches that may run at the same time, those of one branch in order.
struct Section {
  std::size_t begin = 0, end = 0;
  int branches = 0;
};

// Scratch memory that running a program needs, in floats.
struct WorkspaceNeed {
  int64_t shared = 0;
  int64_t per_thread = 0;
};

struct Program {
  std::vector<Op> ops;
  std::vector<Section> sections;
  WorkspaceNeed workspace;
  std::shared_ptr<Arena> arena;
  // What the records point into.
  std::vector<std::shared_ptr<const Constant>> constants;
  std::vector<std::shared_ptr<const PackedWeights>> weights;
  std::vector<std::shared_ptr<const Int8Weights>> int8_weights;
  std::vector<std::shared_ptr<KeyValues>> states;
  std::vector<std::shared_ptr<const BlockWeights>> block_weights;
};

}  // namespace vla
