// Operations on rows, and those that move or blend elements.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "runtime/element_cost.hpp"
#include "runtime/program_builder.hpp"

namespace vla {
namespace {

using Axes = std::array<int64_t, 3>;

std::string axes_text(const Axes& axes) {
  return std::to_string(axes[0]) + ", " + std::to_string(axes[1]) + ", " + std::to_string(axes[2]);
}

// Neighbours must lie within the axis, and sums of the largest pixels within 32 bits.
void check_neighbours(const OperandCheck& check, const ResampleArgs& args) {
  constexpr int64_t kMost = (int64_t{1} << 31) - (int64_t{1} << (ResampleArgs::kBits - 1)) - 1;
  for (int64_t place = 0; place < args.out; ++place) {
    const int64_t first = args.first[place];
    check.require(first >= 0 && first + args.taps <= args.in,
                  "pixels " + std::to_string(first) + " to " + std::to_string(first + args.taps) + " of place " +
                      std::to_string(place) + " leave the axis of " + std::to_string(args.in));
    int64_t sum = 0;
    for (int64_t tap = 0; tap < args.taps; ++tap) sum += std::abs(int64_t{args.weights[place * args.taps + tap]});
    check.require(sum <= kMost / 255, "weights of place " + std::to_string(place) + " are too large");
  }
}

// How far apart neighbours along each axis are, for rows `ld` apart.
Axes strides_of(const Axes& shape, int64_t ld) { return {shape[1] * ld, ld, 1}; }

// x's axes, of `shape` and with these strides in x and in the result, of which `last` is the result's last.
TransposeArgs transpose_args(const Axes& shape, const Axes& in, const Axes& out, int64_t last) {
  TransposeArgs t;
  if (last == 2) {  // rows stay whole
    t.rows = shape[0], t.x_row = in[0], t.y_row = out[0];
    t.cols = shape[1], t.x_col = in[1], t.y_col = out[1];
    t.width = shape[2];
    return t;
  }
  const auto other = static_cast<std::size_t>(1 - last), row = static_cast<std::size_t>(last);
  t.rows = shape[row], t.x_row = in[row], t.y_row = out[row];
  t.cols = shape[2], t.x_col = in[2], t.y_col = out[2];
  t.batches = shape[other], t.x_batch = in[other], t.y_batch = out[other];
  if (t.x_batch == t.cols && t.y_batch == t.cols * t.y_col) {  // the other axis continues the columns ...
    t.cols *= std::exchange(t.batches, 1);
  } else if (t.x_batch == t.rows * t.x_row && t.y_batch == t.rows) {  // ... or the rows
    t.rows *= std::exchange(t.batches, 1);
  }
  return t;
}

}  // namespace

void ProgramBuilder::group_norm(const std::string& label, const Operand& x, const Operand& weight,
                                const Operand& bias, int64_t groups, float eps, Activation activation,
                                const Operand& y) {
  const OperandCheck check = this->check(label);
  check.require(known(activation), "unknown activation");
  check.require_positive("groups", groups);
  check.require(y.cols % groups == 0, std::to_string(groups) + " groups of " + std::to_string(y.cols) +
                                          " columns, expected a number that divides them");
  GroupNormRecord record;
  GroupNormArgs& args = record.args;
  args.x = check.f32("x", x, y.rows, y.cols);
  args.x_ld = x.ld;
  args.weight = check.f32("weight", weight, 1, y.cols);
  args.bias = check.f32("bias", bias, 1, y.cols);
  args.y = check.output(y, y.rows, y.cols);
  args.y_ld = y.ld;
  args.rows = y.rows;
  args.cols = y.cols;
  args.groups = groups;
  args.eps = eps;
  args.activation = activation;
  check.require_apart_or_same("x", x, y);
  check.require_apart("weight", weight, y);
  check.require_apart("bias", bias, y);
  const int64_t piece = std::min(args.rows, args.block_rows()) * std::min(args.cols, GroupNormArgs::kPanel);
  record.piece_chunks = chunk_count(args.pieces(), piece * kCopyCost, sharing(y));
  record.row_chunks = chunk_count(args.rows, args.cols * pointwise_cost(activation), sharing(y));
  int64_t& shared = program_.workspace.shared;
  shared = std::max(shared, args.moments_size() + args.factors_size());
  for (const Operand* operand : {&x, &weight, &bias}) keep(*operand);
  add(label, record);
}

void ProgramBuilder::softmax(const std::string& label, const Operand& x, const Operand& y) {
  const OperandCheck check = this->check(label);
  SoftmaxRecord record;
  record.args = SoftmaxArgs{check.f32("x", x, y.rows, y.cols), x.ld, check.output(y, y.rows, y.cols), y.ld, y.cols};
  check.require_apart_or_same("x", x, y);
  record.rows = y.rows;
  record.chunks = chunk_count(y.rows, y.cols * kTranscendentalCost, sharing(y));
  keep(x);
  add(label, record);
}

void ProgramBuilder::rotary(const std::string& label, const Operand& x, const Operand& cos, const Operand& sin,
                            int64_t heads, const Operand& y, bool interleaved) {
  const OperandCheck check = this->check(label);
  check.require_positive("heads", heads);
  check.require(y.cols % (2 * heads) == 0, "x of " + std::to_string(y.cols) + " columns does not divide into " +
                                               std::to_string(heads) + " heads of two halves");
  RotaryRecord record;
  RotaryArgs& args = record.args;
  args.heads = heads;
  args.half = y.cols / heads / 2;
  args.interleaved = interleaved;
  args.x = check.f32("x", x, y.rows, y.cols);
  args.x_ld = x.ld;
  args.cos = check.f32("cos", cos, y.rows, args.half);
  args.cos_ld = cos.ld;
  args.sin = check.f32("sin", sin, y.rows, args.half);
  args.sin_ld = sin.ld;
  args.y = check.output(y, y.rows, y.cols);
  args.y_ld = y.ld;
  check.require_apart_or_same("x", x, y);
  check.require_apart("cos", cos, y);
  check.require_apart("sin", sin, y);
  record.rows = y.rows;
  record.chunks = chunk_count(y.rows, y.cols * kCopyCost, sharing(y));
  for (const Operand* operand : {&x, &cos, &sin}) keep(*operand);
  add(label, record);
}

void ProgramBuilder::transpose(const std::string& label, const Operand& x, const Axes& shape, const Axes& axes,
                               const Operand& y) {
  const OperandCheck check = this->check(label);
  for (const int64_t size : shape) check.require_positive("an axis", size);
  check.require(std::is_permutation(axes.begin(), axes.end(), Axes{0, 1, 2}.begin()),
                "axes are " + axes_text(axes) + ", expected 0, 1 and 2 in some order");
  const auto at = [&](int64_t axis) { return shape[static_cast<std::size_t>(axis)]; };
  const Axes turned = {at(axes[0]), at(axes[1]), at(axes[2])};
  const float* from = check.f32("x", x, shape[0] * shape[1], shape[2]);
  float* to = check.output(y, turned[0] * turned[1], turned[2]);
  check.require_apart("x", x, y);
  const Axes steps = strides_of(turned, y.ld);
  Axes out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[static_cast<std::size_t>(axes[i])] = steps[i];
  TransposeRecord record{transpose_args(shape, strides_of(shape, x.ld), out, axes[2]), 1};
  TransposeArgs& args = record.args;
  args.x = from;
  args.y = to;
  const int64_t band = args.rows * std::min(args.cols, TransposeArgs::kBand) * args.width;
  record.chunks = chunk_count(args.bands(), band * kCopyCost, sharing(y));
  keep(x);
  add(label, record);
}

void ProgramBuilder::resize(const std::string& label, const Operand& x, ImageSize in, const Operand& y,
                            ImageSize out) {
  const OperandCheck check = this->check(label);
  for (const int64_t side : {in.height, in.width, out.height, out.width}) check.require_positive("image side", side);
  ResizeRecord record;
  ResizeArgs& args = record.args;
  args.x = check.f32("x", x, in.height * in.width, y.cols);
  check.require_dense("x", x);
  args.in_h = in.height;
  args.in_w = in.width;
  args.channels = y.cols;
  args.y = check.output(y, out.height * out.width, y.cols);
  args.y_ld = y.ld;
  args.out_h = out.height;
  args.out_w = out.width;
  check.require_apart("x", x, y);
  int64_t& scratch = program_.workspace.per_thread;
  scratch = std::max(scratch, in.width * args.channels);
  record.chunks = chunk_count(out.height, (in.width + out.width) * args.channels * kCopyCost, sharing(y));
  keep(x);
  add(label, record);
}

void ProgramBuilder::resample(const std::string& label, const Operand& x, ImageSize in, int64_t axis,
                              const Operand& first, const Operand& weights, const Operand& y) {
  const OperandCheck check = this->check(label);
  for (const int64_t side : {in.height, in.width}) check.require_positive("image side", side);
  check.require(axis == 0 || axis == 1, "axis is " + std::to_string(axis) + ", expected 0 or 1");
  ResampleRecord record;
  ResampleArgs& args = record.args;
  args.x = reinterpret_cast<const uint8_t*>(check.input("x", x, DType::kU8, in.height * in.width, y.cols));
  args.outer = axis == 0 ? 1 : in.height;
  args.in = axis == 0 ? in.height : in.width;
  args.inner = axis == 0 ? in.width * y.cols : y.cols;
  args.out = weights.rows;
  args.taps = weights.cols;
  args.first = reinterpret_cast<const int32_t*>(check.input("first", first, DType::kI32, 1, args.out));
  args.weights = reinterpret_cast<const int32_t*>(check.input("weights", weights, DType::kI32, args.out, args.taps));
  args.y = reinterpret_cast<uint8_t*>(
      check.written(y, DType::kU8, axis == 0 ? args.out * in.width : in.height * args.out, y.cols));
  check.require(first.constant && weights.constant, "first and weights are computed, expected constants");
  check.require_dense("x", x);
  check.require_dense("weights", weights);
  check.require_dense("output", y);
  check.require_apart("x", x, y);
  check_neighbours(check, args);
  record.chunks = chunk_count(args.lines(), args.inner * args.taps * kCopyCost, sharing(y));
  for (const Operand* operand : {&x, &first, &weights}) keep(*operand);
  add(label, record);
}

void ProgramBuilder::copy(const std::string& label, const Operand& x, const Operand& y) {
  if (x.dtype == DType::kF32) return pointwise(label, x, Activation::kNone, {}, {}, y);
  const OperandCheck check = this->check(label);
  const int64_t item = item_bytes(x.dtype);
  CopyRecord record;
  record.x = check.input("x", x, x.dtype, y.rows, y.cols);
  record.x_ld = x.ld * item;
  record.y = check.written(y, x.dtype, y.rows, y.cols);
  record.y_ld = y.ld * item;
  record.rows = y.rows;
  record.bytes = y.cols * item;
  check.require_apart("x", x, y);
  record.chunks = chunk_count(y.rows, y.cols * kCopyCost, sharing(y));
  keep(x);
  add(label, record);
}

}  // namespace vla
