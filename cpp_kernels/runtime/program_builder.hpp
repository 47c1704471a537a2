// Adds operations to a program, one method per kind, and refuses those that would not be safe to run.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "runtime/operand.hpp"
#include "runtime/program.hpp"

namespace vla {

struct EpilogueOperands {
  std::optional<Operand> bias;      // 1 x n
  std::optional<Operand> residual;  // m x n, or 1 x n for all rows
  Activation activation = Activation::kNone;
  std::optional<Operand> gamma;  // 1 x n, with beta
  std::optional<Operand> beta;
};

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};

// How far a window moves down and to the right; a number is for both.
struct Steps {
  Steps(int64_t both) : down(both), right(both) {}
  Steps(int64_t vertical, int64_t horizontal) : down(vertical), right(horizontal) {}
  int64_t down, right;
};

// Rows and columns of zeros around an image; a number is for all sides.
struct Edges {
  Edges(int64_t all) : top(all), bottom(all), left(all), right(all) {}
  Edges(int64_t above, int64_t below, int64_t before, int64_t after)
      : top(above), bottom(below), left(before), right(after) {}
  bool even() const { return top == bottom && left == right && top == left; }
  int64_t top, bottom, left, right;
};

// Window of a convolution or pooling, and how it moves.
struct Window {
  ImageSize kernel;
  Steps stride = 1;
  Edges padding = 0;
  int64_t dilation = 1;
};

struct Heads {
  int64_t query = 1;
  int64_t key_value = 1;
  float scale = 1.0f;
};

// Every method throws ProgramError, which names the operation, where shapes do not fit, memory is exceeded, or the
// output shares memory with what is read. The kernels and the arena must outlive the builder and its programs
// keep the arena and all constants alive.
class ProgramBuilder {
 public:
  ProgramBuilder(const KernelTable& kernels, const Int8Table& int8_kernels, const Sharing& sharing,
                 std::shared_ptr<Arena> arena);

  // What is added from now on belongs to this branch of a section, or to none if it is negative. An operation of a
  // branch must neither read nor overwrite what another branch of its section writes or reads.
  void set_branch(int branch) { branch_ = branch; }

  // y = epilogue(x * weights^T). Weights may also be INT8 ones; then the input is quantized when the program runs. Or they
  // are in blocks.
  void linear(const std::string& label, const Operand& x, std::shared_ptr<const PackedWeights> weights,
              const Operand& y, const EpilogueOperands& epilogue);
  void linear(const std::string& label, const Operand& x, std::shared_ptr<const Int8Weights> weights,
              const Operand& y, const EpilogueOperands& epilogue);
  void linear(const std::string& label, const Operand& x, std::shared_ptr<const BlockWeights> weights,
              const Operand& y, const EpilogueOperands& epilogue);
  // x and y are images as pixels x channels; the weights are packed as [out_c][kernel.h * kernel.w * in_c]. Those
  // packed for Winograd's method are for a 3x3 kernel with stride and dilation 1.
  void conv2d(const std::string& label, const Operand& x, ImageSize in, std::shared_ptr<const PackedWeights> weights,
              const Window& window, const Operand& y, ImageSize out, const EpilogueOperands& epilogue);
  void conv2d(const std::string& label, const Operand& x, ImageSize in, std::shared_ptr<const Int8Weights> weights,
              const Window& window, const Operand& y, ImageSize out, const EpilogueOperands& epilogue);
  // The same by storing every patch of the image before the product, in the engine's scratch memory.
  void conv2d_flat(const std::string& label, const Operand& x, ImageSize in,
                   std::shared_ptr<const PackedWeights> weights, const Window& window, const Operand& y, ImageSize out,
                   const EpilogueOperands& epilogue);
  void max_pool2d(const std::string& label, const Operand& x, ImageSize in, const Window& window,
                  const Operand& y, ImageSize out);
  // bias is (heads * queries) x keys, or queries x keys for all heads.
  void attention(const std::string& label, const Operand& q, const Operand& k, const Operand& v,
                 const std::optional<Operand>& bias, const Operand& y, const Heads& heads,
                 AttentionMethod method = AttentionMethod::kFused);
  void layer_norm(const std::string& label, const Operand& x, const Operand& weight, const Operand& bias,
                  float eps, const Operand& y);
  void rms_norm(const std::string& label, const Operand& x, const Operand& weight, float eps, const Operand& y);
  // x is pixels or rows x channels.
  void group_norm(const std::string& label, const Operand& x, const Operand& weight, const Operand& bias,
                  int64_t groups, float eps, Activation activation, const Operand& y);
  void softmax(const std::string& label, const Operand& x, const Operand& y);
  // cos and sin are rows x half of a head's width. Interleaved: the columns of a pair are neighbours.
  void rotary(const std::string& label, const Operand& x, const Operand& cos, const Operand& sin, int64_t heads,
              const Operand& y, bool interleaved = false);
  // x, of three axes of which the last forms its columns, with the axes in another order.
  void transpose(const std::string& label, const Operand& x, const std::array<int64_t, 3>& shape,
                 const std::array<int64_t, 3>& axes, const Operand& y);
  void resize(const std::string& label, const Operand& x, ImageSize in, const Operand& y, ImageSize out);
  // x is an image of 8 bits, y the same with another size along `axis`, 0 (down) or 1. Row r of the weights, int32 in
  // 2^-22ths, is for the neighbours from first[r] on that make place r of y. Both are constants.
  void resample(const std::string& label, const Operand& x, ImageSize in, int64_t axis, const Operand& first,
                const Operand& weights, const Operand& y);
  // Of any type.
  void copy(const std::string& label, const Operand& x, const Operand& y);
  // b has the shape of a, one row for all rows of a, one column for all its columns, or one value.
  void binary(const std::string& label, Binary op, const Operand& a, const Operand& b, const Operand& y);
  // y = activation(x), then (1 + gamma) * y + beta where given; a copy with neither.
  void pointwise(const std::string& label, const Operand& x, Activation activation,
                 const std::optional<Operand>& gamma, const std::optional<Operand>& beta, const Operand& y);
  void mean_rows(const std::string& label, const Operand& x, const Operand& y);
  // y[pixel][channel] = table[channel][x[pixel][channel]]; the table is channels x 256.
  void lookup_u8(const std::string& label, const Operand& x, const Operand& table, const Operand& y);
  // y[r] = table[ids[r]]; ids are checked when the program runs.
  void embedding(const std::string& label, const Operand& table, const Operand& ids, const Operand& y);
  void embedding(const std::string& label, std::shared_ptr<const BlockWeights> table, const Operand& ids,
                 const Operand& y);

  // Row i of k and v goes to row positions[i] of the state; positions rise, which is checked when the program runs.
  void append(const std::string& label, std::shared_ptr<KeyValues> state, const Operand& k, const Operand& v,
              const Operand& positions);
  // Row i of q attends to the rows of the state up to positions[i], which are checked when the program runs.
  void cached_attention(const std::string& label, const Operand& q, std::shared_ptr<KeyValues> state,
                        const Operand& positions, const Operand& y, int64_t heads, float scale);

  // Hands over what was added; the builder is empty afterwards.
  std::shared_ptr<const Program> build();

 private:
  OperandCheck check(const std::string& label) const { return OperandCheck(*program_.arena, label); }
  Epilogue checked_epilogue(const OperandCheck& check, const EpilogueOperands& epilogue, const Operand& y, int64_t m,
                            int64_t n) const;
  LinearArgs linear_args(const OperandCheck& check, const Operand& x, const Operand& y,
                         const EpilogueOperands& epilogue) const;
  Conv2dArgs conv2d_args(const OperandCheck& check, const Operand& x, const ImageSize& in, const Window& window,
                         const Operand& y, const ImageSize& out, const EpilogueOperands& epilogue) const;
  void need_int8_input(int64_t scales, int64_t bytes);
  // Chooses chunks and scratch memory for the kernel that the weights are packed for.
  void cut(Int8Conv2dRecord& record, const Int8Weights& weights, const OperandCheck& check, const Window& window,
           const Sharing& sharing);
  void add_conv2d(const std::string& label, const Conv2dArgs& args, const PackedWeights& weights);
  void check_weights(const OperandCheck& check, const std::shared_ptr<const PackedWeights>& weights, int64_t n,
                     int64_t k) const;
  void check_weights(const OperandCheck& check, const std::shared_ptr<const Int8Weights>& weights, int64_t n,
                     Int8Runs runs) const;
  const KeyValueShape& checked_state(const OperandCheck& check, const std::shared_ptr<KeyValues>& state) const;
  void check_weights(const OperandCheck& check, const std::shared_ptr<const BlockWeights>& weights, int64_t n,
                     int64_t k) const;
  void need_blocks_scratch(int64_t k);
  Sharing sharing_for(int64_t elements) const;
  Sharing sharing(const Operand& y) const { return sharing_for(y.rows * y.cols); }
  void keep(const Operand& operand);
  void keep(const EpilogueOperands& epilogue);
  void add(const std::string& label, Record record);

  const KernelTable& kernels_;
  const Int8Table& int8_;
  Sharing sharing_;
  int branch_ = -1;
  Program program_;
};

}  // namespace vla
