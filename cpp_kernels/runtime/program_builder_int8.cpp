// The INT8 operations of a program.
#include <utility>

#include "runtime/int8_input.hpp"
#include "runtime/program_builder.hpp"

namespace vla {
namespace {

// Of quantizing one value, as in element_cost.hpp.
constexpr int64_t kQuantizeCost = 32;

}  // namespace

void ProgramBuilder::check_weights(const OperandCheck& check, const std::shared_ptr<const Int8Weights>& weights,
                                   int64_t n, Int8Runs runs) const {
  check.require(weights != nullptr, "no weights");
  check.require(&weights->kernels() == &int8_, std::string("weights are packed for the INT8 kernels ") +
                                                   weights->kernels().name + ", the program runs on " + int8_.name);
  const auto shape = [](int64_t channels, Int8Runs parts) {
    return std::to_string(channels) + "x" + std::to_string(parts.runs) + "x" + std::to_string(parts.run);
  };
  const Int8Runs got = weights->runs();
  check.require(weights->n() == n && got.runs == runs.runs && got.run == runs.run,
                "INT8 weights are " + shape(weights->n(), got) + ", expected " + shape(n, runs));
}

void ProgramBuilder::need_int8_input(int64_t scales, int64_t bytes) {
  int64_t& shared = program_.workspace.shared;
  shared = std::max(shared, int8_scale_floats(scales) + ceil_div(bytes, static_cast<int64_t>(sizeof(float))));
}

void ProgramBuilder::linear(const std::string& label, const Operand& x, std::shared_ptr<const Int8Weights> weights,
                            const Operand& y, const EpilogueOperands& epilogue) {
  const OperandCheck check = this->check(label);
  check_weights(check, weights, y.cols, Int8Runs{1, x.cols});
  Int8LinearRecord record;
  LinearArgs& args = record.args;
  args = linear_args(check, x, y, epilogue);
  args.packed = reinterpret_cast<const float*>(weights->data());
  record.quantize_chunks = chunk_count(args.m, args.k * kQuantizeCost, sharing(y));
  record.grid = cut_linear(int8_, args.m, args.n, args.k, sharing(y));
  need_int8_input(args.m, int8_.rows_bytes(args.m, args.k));
  keep(x);
  keep(epilogue);
  program_.int8_weights.push_back(std::move(weights));
  add(label, record);
}

void ProgramBuilder::cut(Int8Conv2dRecord& record, const Int8Weights& weights, const OperandCheck& check,
                         const Window& window, const Sharing& sharing) {
  const Conv2dArgs& args = record.args;
  record.winograd = weights.winograd();
  if (!record.winograd) {
    record.grid = cut_conv2d(int8_, args.out_h * args.out_w, args.out_c, weights.k(), sharing);
    return;
  }
  check.require(window.kernel.height == 3 && window.kernel.width == 3 && window.stride.down == 1 &&
                    window.stride.right == 1 && window.dilation == 1,
                "INT8 weights are packed for Winograd's method with 3x3 kernels, stride 1 and dilation 1");
  const WinogradForm form{kInt8WinogradSide};
  const int64_t tiles = ceil_div(args.out_h, form.side) * ceil_div(args.out_w, form.side);
  record.grid = cut_winograd(int8_, tiles, args.out_c, args.in_c, form, sharing);
  int64_t& scratch = program_.workspace.per_thread;
  scratch = std::max(scratch, int8_.winograd_scratch(args));
}

void ProgramBuilder::conv2d(const std::string& label, const Operand& x, ImageSize in,
                            std::shared_ptr<const Int8Weights> weights, const Window& window, const Operand& y,
                            ImageSize out, const EpilogueOperands& epilogue) {
  const OperandCheck check = this->check(label);
  Int8Conv2dRecord record;
  Conv2dArgs& args = record.args;
  args = conv2d_args(check, x, in, window, y, out, epilogue);
  const ImageSize& kernel = window.kernel;
  check_weights(check, weights, y.cols, window.dilation == 1
                                            ? Int8Runs{kernel.height, kernel.width * x.cols}
                                            : Int8Runs{kernel.height * kernel.width, x.cols});
  args.packed = reinterpret_cast<const float*>(weights->data());
  record.quantize_chunks = chunk_count(args.in_h, args.in_w * args.in_c * kQuantizeCost, sharing(y));
  cut(record, *weights, check, window, sharing(y));
  need_int8_input(1 + record.quantize_chunks, int8_.image_bytes(args));
  keep(x);
  keep(epilogue);
  program_.int8_weights.push_back(std::move(weights));
  add(label, record);
}

}  // namespace vla
