// The kernels' arguments and entry points, one table per instruction set.
//
// Every kernel works on a range of its output, so that the runtime decides how work is shared between
// threads; no kernel allocates, and none knows of policies. All matrices are row-major fp32; a leading
// dimension ("ld") counts elements. Images are height x width x channels, so a pixel is a row of channels.
// A result does not depend on how its range is cut, to the last bit. Outputs overlap no input, except where a
// kernel says otherwise: long sums pass through them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vla {

enum class Activation : int32_t {
  kNone = 0,
  kRelu = 1,
  kGelu = 2,
  kGeluTanh = 3,
  kSilu = 4,
  kTanh = 5,
  kMish = 6,
  kSigmoid = 7,
  kExp = 8,  // no more than e^88
};
constexpr Activation kLastActivation = Activation::kExp;

enum class Binary : int32_t { kAdd = 0, kSub = 1, kMul = 2, kDiv = 3, kMin = 4, kMax = 5 };
constexpr Binary kLastBinary = Binary::kMax;

// What follows a matrix product or convolution, in this order:
//   y = activation(product + bias + residual);  y = (1 + gamma) * y + beta
struct Epilogue {
  const float* bias = nullptr;      // [n]
  const float* residual = nullptr;  // [m][residual_ld]
  int64_t residual_ld = 0;
  Activation activation = Activation::kNone;
  const float* gamma = nullptr;  // [n], given together with beta
  const float* beta = nullptr;
};

// y[m][n] = x[m][k] * w[n][k]^T, with w packed in panels or, for linear_rows, as it is; where `bf16` says so its values
// are bfloat16 ones.
struct LinearArgs {
  const float* x = nullptr;
  int64_t x_ld = 0;
  const float* packed = nullptr;
  bool bf16 = false;
  float* y = nullptr;
  int64_t y_ld = 0;
  int64_t m = 0, n = 0, k = 0;
  int64_t block_rows = 0;  // rows that pass by one part of a panel before the next is taken; 0: as fit the cache
  Epilogue epilogue;
};

// Weights of few bits, in blocks of kBlockValues adjacent ones of a row that share a scale d in float16. A weight is
//   kQ8_0   d * q with q of 8 bits and a sign
//   kQ4_0   d * (q - 8) with q of 4 bits
//   kQ4_1   d * q + least with q of 4 bits, and `least` in float16 for each block too
// rounded to fp32 once. As ggml keeps them, a block is d, `least` and the values of q one after the other; those of 4
// bits are first the lower halves of 16 bytes, then the upper halves.
enum class BlockForm : int32_t { kQ8_0 = 0, kQ4_0 = 1, kQ4_1 = 2 };
constexpr int64_t kBlockValues = 32;

constexpr int64_t block_bytes(BlockForm form) {
  return form == BlockForm::kQ8_0 ? 2 + 32 : form == BlockForm::kQ4_0 ? 2 + 16 : 4 + 16;
}

// A convolution as a matrix product: m = out_h * out_w rows of k = kernel_h * kernel_w * in_c values.
// The filter is packed as w[out_c][kernel_h][kernel_w][in_c].
struct Conv2dArgs {
  const float* x = nullptr;
  int64_t in_h = 0, in_w = 0, in_c = 0;
  const float* packed = nullptr;
  bool bf16 = false;  // as in LinearArgs
  float* y = nullptr;
  int64_t y_ld = 0;
  int64_t out_h = 0, out_w = 0, out_c = 0;
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  int64_t dilation = 1;
  int64_t block_rows = 0;  // as in LinearArgs, in whole rows of the image
  Epilogue epilogue;

  constexpr int64_t padded_h() const { return in_h + pad_top + pad_bottom; }
  constexpr int64_t padded_w() const { return in_w + pad_left + pad_right; }
  constexpr bool padded() const { return padded_h() > in_h || padded_w() > in_w; }
};

// A form of Winograd's method: for square filters of side `kernel`, on tiles of side x side output pixels. There are
// 3x3 filters with stride 1 or 2 on tiles of side 2 or 4, and 7x7 filters with stride 2 on columns of 4 pixels. With
// tiles of 2x2 the sums round about one and a half times as much as directly, with stride 2 less than directly; with
// tiles of 4x4 about four times, with stride 2 one and a half times as much; 7x7 filters one and a half times.
struct WinogradForm {
  int64_t side = 0;
  int64_t kernel = 3;
  int64_t stride = 1;

  constexpr int64_t tile_width() const { return kernel == 7 ? 1 : side; }
  // Of a pair of channels, per tile.
  constexpr int64_t products() const {
    if (kernel == 7) return 13 * kernel;
    const int64_t across = stride == 1 ? side + 2 : 2 * side + 1;
    return across * across;
  }
  constexpr bool exists() const {
    if (kernel == 7) return stride == 2 && side == 4;
    return kernel == 3 && (stride == 1 || stride == 2) && (side == 2 || side == 4);
  }
};

struct MaxPool2dArgs {
  const float* x = nullptr;
  int64_t in_h = 0, in_w = 0, channels = 0;
  float* y = nullptr;
  int64_t out_h = 0, out_w = 0;
  int64_t kernel = 1, stride = 1, padding = 0;
};

// Scaled dot-product attention, one head at a time; grouped-query where kv_heads < heads.
// q is [queries][heads * head_dim], k and v are [keys][kv_heads * head_dim], bias is [heads][queries][keys], or
// [queries][keys] for all heads.
struct AttentionArgs {
  const float* q = nullptr;
  int64_t q_ld = 0;
  const float* k = nullptr;
  int64_t k_ld = 0;
  const float* v = nullptr;
  int64_t v_ld = 0;
  const float* bias = nullptr;  // added to the scaled scores
  int64_t bias_head = 0;        // from the bias of one head to the next: queries * keys, or 0 where they share one
  float* y = nullptr;
  int64_t y_ld = 0;
  int64_t queries = 0, keys = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1.0f;
};

// What the tokens so far left for attention: keys and values of up to `rows` of them.
struct KeyValueShape {
  int64_t rows = 0, kv_heads = 0, head_dim = 0;

  constexpr int64_t width() const { return kv_heads * head_dim; }
};

// Rows of k and v [m][kv_heads * head_dim] go to those of the state that `positions` says.
struct AppendArgs {
  const float* k = nullptr;
  int64_t k_ld = 0;
  const float* v = nullptr;
  int64_t v_ld = 0;
  const int32_t* positions = nullptr;
  float* state = nullptr;
  KeyValueShape shape;
};

// Attention of row i of q [queries][heads * head_dim] to the rows of a state up to positions[i]; those after it are not
// read, and what it computes does not depend on the other rows of q.
struct CachedAttentionArgs {
  const float* q = nullptr;
  int64_t q_ld = 0;
  const float* state = nullptr;
  KeyValueShape shape;
  const int32_t* positions = nullptr;
  float* y = nullptr;
  int64_t y_ld = 0;
  int64_t queries = 0, heads = 0;
  float scale = 1.0f;

  constexpr int64_t heads_per_kv() const { return heads / shape.kv_heads; }
  // Query heads over one key-value head, all rows of them: the unit of work. Row by row, and of a row head by head.
  constexpr int64_t units() const { return queries * heads_per_kv(); }
};

// weight and bias may be null (RMS norm has no bias). y may be x.
struct NormArgs {
  const float* x = nullptr;
  int64_t x_ld = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_ld = 0;
  int64_t cols = 0;
  float eps = 0.0f;
};

// y = a (op) b, row by row; b has one row for all when b_ld is 0, and one value for all of a row where b_value says so.
// y may be a, or b of as many rows and columns.
struct BinaryArgs {
  const float* a = nullptr;
  int64_t a_ld = 0;
  const float* b = nullptr;
  int64_t b_ld = 0;
  bool b_value = false;
  float* y = nullptr;
  int64_t y_ld = 0;
  int64_t cols = 0;
  Binary op = Binary::kAdd;
};

// Norm of groups of adjacent columns over all rows, then an activation. Moments are gathered in blocks of rows, whose
// number does not depend on threads, and of kPanel columns; from these come the mean and the factor of every column.
struct GroupNormArgs {
  static constexpr int64_t kPanel = 128;
  static constexpr int64_t kMostBlocks = 32;
  static constexpr int64_t kLeastRows = 16;

  const float* x = nullptr;
  int64_t x_ld = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_ld = 0;
  int64_t rows = 0, cols = 0, groups = 1;
  float eps = 0.0f;
  Activation activation = Activation::kNone;

  constexpr int64_t block_rows() const {
    const int64_t even = (rows + kMostBlocks - 1) / kMostBlocks;
    return even < kLeastRows ? kLeastRows : even;
  }
  constexpr int64_t blocks() const { return (rows + block_rows() - 1) / block_rows(); }
  constexpr int64_t panels() const { return (cols + kPanel - 1) / kPanel; }
  constexpr int64_t pieces() const { return blocks() * panels(); }
  constexpr int64_t moments_size() const { return blocks() * 2 * cols; }  // in floats
  constexpr int64_t factors_size() const { return 2 * cols; }
};

// y = softmax(x) of each row. y may be x.
struct SoftmaxArgs {
  const float* x = nullptr;
  int64_t x_ld = 0;
  float* y = nullptr;
  int64_t y_ld = 0;
  int64_t cols = 0;
};

// The halves a, b of each head of x [rows][heads * 2 * half] become a * cos - b * sin and b * cos + a * sin, with cos
// and sin [rows][half]. Where they are interleaved a are the even columns of a head and b the odd ones. y may be x.
struct RotaryArgs {
  const float* x = nullptr;
  int64_t x_ld = 0;
  const float* cos = nullptr;
  int64_t cos_ld = 0;
  const float* sin = nullptr;
  int64_t sin_ld = 0;
  float* y = nullptr;
  int64_t y_ld = 0;
  int64_t heads = 1, half = 0;
  bool interleaved = false;
};

// y[batch][col][row] = x[batch][row][col] of elements of `width` adjacent values; strides in floats. Where the width
// is one, x's columns and y's rows are adjacent.
struct TransposeArgs {
  static constexpr int64_t kBand = 16;  // columns of x that are the unit of work

  const float* x = nullptr;
  int64_t x_batch = 0, x_row = 0, x_col = 1;
  float* y = nullptr;
  int64_t y_batch = 0, y_col = 0, y_row = 1;
  int64_t batches = 1, rows = 0, cols = 0, width = 1;

  constexpr int64_t bands_per_batch() const { return (cols + kBand - 1) / kBand; }
  constexpr int64_t bands() const { return batches * bands_per_batch(); }
};

// An image in another size, bilinear between the centres of pixels, borders repeated.
struct ResizeArgs {
  const float* x = nullptr;
  int64_t in_h = 0, in_w = 0, channels = 0;
  float* y = nullptr;
  int64_t y_ld = 0;
  int64_t out_h = 0, out_w = 0;
};

// Pixels of 8 bits along one axis of x[outer][in][inner], each of the `out` new ones a sum of `taps` neighbours:
//   y[o][place][i] = sum_t weights[place][t] * x[o][first[place] + t][i] / 2^kBits
// rounded to nearest and brought into 0 to 255. All neighbours are within the axis, and no sum leaves 32 bits.
struct ResampleArgs {
  const uint8_t* x = nullptr;
  int64_t outer = 0, in = 0, inner = 0;
  const int32_t* first = nullptr;    // [out]
  const int32_t* weights = nullptr;  // [out][taps]
  int64_t taps = 0;
  uint8_t* y = nullptr;
  int64_t out = 0;

  static constexpr int kBits = 22;
  constexpr int64_t lines() const { return outer * out; }
};

// y = activation(x), then (1 + gamma) * y + beta where gamma is given. y may be x.
struct PointwiseArgs {
  const float* x = nullptr;
  int64_t x_ld = 0;
  float* y = nullptr;
  int64_t y_ld = 0;
  int64_t cols = 0;
  Activation activation = Activation::kNone;
  const float* gamma = nullptr;
  const float* beta = nullptr;
};

struct EmbeddingArgs {
  const float* table = nullptr;
  int64_t table_ld = 0;
  const int32_t* ids = nullptr;
  float* y = nullptr;
  int64_t y_ld = 0;
  int64_t cols = 0;
};

struct Range {
  int64_t begin = 0, end = 0;
};

struct KernelTable {
  const char* isa;       // "portable", "avx2", "avx512", "neon"
  int64_t vector_width;  // fp32 values per vector register
  int64_t tile_rows;     // register tile of the matrix product: mr rows ...
  int64_t tile_cols;     // ... by nr columns, which is also the width of a packed panel

  // Weights are packed into ceil(n / tile_cols) panels, each zero-padded to tile_cols columns.
  int64_t (*packed_size)(int64_t n, int64_t k);  // in values
  void (*pack_weights)(const float* w, int64_t n, int64_t k, float* packed, Range panels);
  // The same for weights that are bfloat16 values, which keep their upper halves only and are expanded in registers.
  void (*pack_bf16)(const float* w, int64_t n, int64_t k, uint16_t* packed, Range panels);

  void (*linear)(const LinearArgs&, Range rows, Range panels);
  // The same for weights [n][k] that are kept row by row in place of packed ones. A panel is tile_cols of their rows.
  void (*linear_rows)(const LinearArgs&, Range rows, Range panels);

  // Weights [n][k] in blocks, in panels of as many bytes for each of their columns, of which those past the last are
  // zero. `blocks` are the rows as ggml keeps them.
  void (*pack_blocks)(BlockForm, const std::byte* blocks, int64_t n, int64_t k, std::byte* packed, Range panels);
  // `linear` with these, which gives what it gives with their values in fp32, to the last bit. Scratch is for one
  // thread; its size in floats.
  int64_t (*blocks_scratch)(int64_t k);
  void (*linear_blocks)(BlockForm, const LinearArgs&, Range rows, Range panels, float* scratch);
  // `embedding` with a table [rows][cols] packed in blocks.
  void (*embed_blocks)(BlockForm, const EmbeddingArgs&, Range rows, float* scratch);

  // `linear` by Strassen's method: seven products of sums of quarters of both operands in place of eight of quarters, and
  // about twice the rounding. Columns and depth of the layers that it fits are halves of whole panels and lines. Rows are
  // pairs of m / 2 rows, of which the one that comes last computes that of an odd number too; panels are pairs as well.
  // Sums of the weights' quarters are packed, strassen_packed_size floats. Scratch is for one thread; its size in floats.
  bool (*strassen_fits)(int64_t n, int64_t k);
  int64_t (*strassen_packed_size)(int64_t n, int64_t k);
  void (*strassen_pack)(const float* w, int64_t n, int64_t k, float* packed, Range panels);
  int64_t (*strassen_scratch)(const LinearArgs&);
  void (*strassen)(const LinearArgs&, Range rows, Range panels, float* scratch);

  // Scratch holds one block of patches, for one thread; its size in floats.
  int64_t (*conv2d_scratch)(const Conv2dArgs&);
  void (*conv2d)(const Conv2dArgs&, Range rows, Range panels, float* scratch);
  // Stores the patches of these output pixels, in rows of kernel_h * kernel_w * in_c values from that of pixel 0 on: the
  // operand that turns the convolution into a linear layer with the same packed filter.
  void (*conv2d_patches)(const Conv2dArgs&, Range pixels, float* patches);

  // The same without dilation by Winograd's method: fewer multiplications, and more rounding, see WinogradForm. Tiles
  // are numbered row by row over the output; the last of a row or column may reach out of it. Filters
  // [out_c][kernel][kernel][in_c] are transformed when they are packed, into winograd_packed_size floats. Scratch is
  // for one thread; its size in floats.
  int64_t (*winograd_packed_size)(const WinogradForm&, int64_t out_c, int64_t in_c);
  void (*winograd_pack)(const WinogradForm&, const float* w, int64_t out_c, int64_t in_c, float* packed, Range panels);
  int64_t (*winograd_scratch)(const WinogradForm&, const Conv2dArgs&);
  void (*winograd)(const WinogradForm&, const Conv2dArgs&, Range tiles, Range panels, float* scratch);

  void (*max_pool2d)(const MaxPool2dArgs&, Range out_rows);  // rows of the output image

  // Attention with online softmax. K and V of a key-value head are packed, from which query rows of the heads over it are
  // computed independently of each other.
  int64_t (*attention_packed_size)(const AttentionArgs&);  // floats per key-value head
  int64_t (*attention_scratch)(const AttentionArgs&);      // floats per thread
  void (*attention_pack)(const AttentionArgs&, int64_t kv_head, float* packed);
  void (*attention)(const AttentionArgs&, int64_t head, Range queries, const float* packed, float* scratch);

  // The same for few queries, with K and V where they lie. `queries` begins at a multiple of the vector width and ends at
  // one or with the last query.
  bool (*attention_unpacked_fits)(const AttentionArgs&);
  int64_t (*attention_unpacked_scratch)(const AttentionArgs&);  // floats per thread
  void (*attention_unpacked)(const AttentionArgs&, int64_t head, Range queries, float* scratch);

  // The same from packed K and V in three steps, each of which reads what the one before left of the same queries: a
  // matrix of all scores of the head, its size in floats.
  int64_t (*attention_scores_size)(const AttentionArgs&);
  void (*attention_scores)(const AttentionArgs&, int64_t head, Range queries, const float* packed, float* scores);
  void (*attention_softmax)(const AttentionArgs&, int64_t head, Range queries, float* scores);
  void (*attention_values)(const AttentionArgs&, int64_t head, Range queries, const float* packed,
                           const float* scores);

  // A state, in the layout that attention reads: floats that it takes, zero before the first row is appended.
  int64_t (*key_value_size)(const KeyValueShape&);
  void (*append)(const AppendArgs&, Range rows);
  int64_t (*cached_attention_scratch)(const CachedAttentionArgs&);  // floats per thread
  void (*cached_attention)(const CachedAttentionArgs&, int64_t kv_head, Range units, float* scratch);

  void (*layer_norm)(const NormArgs&, Range rows);
  void (*rms_norm)(const NormArgs&, Range rows);
  // Three steps: moments of pieces; the mean and the factor of every column, from all moments; the result.
  void (*group_norm_moments)(const GroupNormArgs&, Range pieces, float* moments);
  void (*group_norm_factors)(const GroupNormArgs&, const float* moments, float* factors);
  void (*group_norm)(const GroupNormArgs&, Range rows, const float* factors);
  void (*softmax)(const SoftmaxArgs&, Range rows);
  void (*rotary)(const RotaryArgs&, Range rows);
  void (*transpose)(const TransposeArgs&, Range bands);
  // Scratch holds one row of the image, in_w * channels floats, for one thread.
  void (*resize)(const ResizeArgs&, Range out_rows, float* scratch);
  void (*resample)(const ResampleArgs&, Range lines);
  void (*binary)(const BinaryArgs&, Range rows);
  void (*pointwise)(const PointwiseArgs&, Range rows);
  // Mean over rows: y[cols] = mean_r x[r][cols].
  void (*mean_rows)(const float* x, int64_t x_ld, int64_t rows, float* y, Range cols);
  // y[i] = table[c][x[i]] for interleaved channels; the table is [channels][256].
  void (*lookup_u8)(const uint8_t* x, const float* table, int64_t channels, float* y, Range pixels);
  // Rows of a table by index: y[r] = table[ids[r]].
  void (*embedding)(const EmbeddingArgs&, Range rows);

  // A loop of fused multiply-adds on registers, for the peak rate: performs `iterations` rounds and
  // returns the floating-point operations done.
  double (*fma_peak)(int64_t iterations);
  // Reads `count` values, a multiple of 128, `passes` times and returns a sum of them, for the bandwidth of memory.
  float (*read_all)(const float* x, int64_t count, int64_t passes);
};

}  // namespace vla
