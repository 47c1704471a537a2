#include "runtime/program_builder.hpp"

#include <utility>

#include "runtime/element_cost.hpp"

namespace vla {
namespace {

constexpr int64_t kMaxWindow = 1 << 14;

std::string size_text(const ImageSize& size) {
  return std::to_string(size.height) + "x" + std::to_string(size.width);
}

int64_t window_output(int64_t padded, int64_t kernel, int64_t stride, int64_t dilation) {
  return (padded - dilation * (kernel - 1) - 1) / stride + 1;
}

void check_window(const OperandCheck& check, const ImageSize& in, const Window& window, const ImageSize& out) {
  for (const int64_t value : {in.height, in.width, out.height, out.width}) check.require_positive("image side", value);
  const auto& [kernel, stride, padding, dilation] = window;
  for (const int64_t value : {kernel.height, kernel.width, stride.down, stride.right, dilation}) {
    check.require(value >= 1 && value <= kMaxWindow, "kernel side, stride or dilation is " + std::to_string(value) +
                                                         ", expected 1 to " + std::to_string(kMaxWindow));
  }
  for (const int64_t value : {padding.top, padding.bottom, padding.left, padding.right}) {
    check.require(value >= 0 && value <= kMaxWindow,
                  "padding is " + std::to_string(value) + ", expected 0 to " + std::to_string(kMaxWindow));
  }
  const ImageSize padded{in.height + padding.top + padding.bottom, in.width + padding.left + padding.right};
  const bool covers =
      padded.height > dilation * (kernel.height - 1) && padded.width > dilation * (kernel.width - 1);
  check.require(covers, "the kernel " + size_text(kernel) + " is larger than the image " + size_text(in));
  const ImageSize expected{window_output(padded.height, kernel.height, stride.down, dilation),
                           window_output(padded.width, kernel.width, stride.right, dilation)};
  check.require(expected.height == out.height && expected.width == out.width,
                "output image is " + size_text(out) + ", expected " + size_text(expected));
}

// Into how many chunks the queries of each head are cut for at least `chunks` altogether: if possible so that each
// thread gets as many.
int64_t query_chunks(int64_t chunks, int64_t heads, int64_t tiles, int64_t threads) {
  const int64_t least = std::clamp(ceil_div(chunks, heads), int64_t{1}, tiles);
  if (chunks < threads) return least;
  for (int64_t count = least; count <= std::min(2 * least, tiles); ++count) {
    if (heads * count % threads == 0) return count;
  }
  return least;
}

}  // namespace

ProgramBuilder::ProgramBuilder(const KernelTable& kernels, const Int8Table& int8_kernels, const Sharing& sharing,
                               std::shared_ptr<Arena> arena)
    : kernels_(kernels), int8_(int8_kernels), sharing_(sharing) {
  if (!arena) throw ProgramError("program: no arena");
  program_.arena = std::move(arena);
}

std::shared_ptr<const Program> ProgramBuilder::build() {
  Program empty;
  empty.arena = program_.arena;
  return std::make_shared<const Program>(std::exchange(program_, std::move(empty)));
}

Sharing ProgramBuilder::sharing_for(int64_t elements) const {
  if (elements < sharing_.parallel_cutoff) return Sharing();
  Sharing sharing = sharing_;
  if (branch_ >= 0 && sharing.threads_per_branch > 0) {
    sharing.threads = std::min(sharing.threads, sharing.threads_per_branch);
  }
  return sharing;
}

void ProgramBuilder::add(const std::string& label, Record record) {
  if (branch_ >= 0) {
    if (program_.ops.empty() || program_.ops.back().branch < 0) {
      program_.sections.push_back({program_.ops.size(), program_.ops.size(), 0});
    }
    Section& section = program_.sections.back();
    section.end = program_.ops.size() + 1;
    section.branches = std::max(section.branches, branch_ + 1);
  }
  program_.ops.push_back(Op{label, std::move(record), branch_});
}

void ProgramBuilder::keep(const Operand& operand) {
  if (operand.constant) program_.constants.push_back(operand.constant);
}

void ProgramBuilder::keep(const EpilogueOperands& epilogue) {
  for (const auto* operand : {&epilogue.bias, &epilogue.residual, &epilogue.gamma, &epilogue.beta}) {
    if (*operand) keep(**operand);
  }
}

void ProgramBuilder::check_weights(const OperandCheck& check, const std::shared_ptr<const PackedWeights>& weights,
                                   int64_t n, int64_t k) const {
  check.require(weights != nullptr, "no weights");
  check.require(&weights->kernels() == &kernels_, std::string("weights are packed for ") + weights->kernels().isa +
                                                      ", the program runs on " + kernels_.isa);
  check.require(weights->n() == n && weights->k() == k,
                "weights are " + std::to_string(weights->n()) + "x" + std::to_string(weights->k()) +
                    ", expected " + std::to_string(n) + "x" + std::to_string(k));
}

Epilogue ProgramBuilder::checked_epilogue(const OperandCheck& check, const EpilogueOperands& epilogue,
                                          const Operand& y, int64_t m, int64_t n) const {
  Epilogue checked;
  check.require(known(epilogue.activation), "unknown activation");
  check.require(epilogue.gamma.has_value() == epilogue.beta.has_value(), "gamma and beta go together");
  checked.activation = epilogue.activation;
  const auto vector = [&](const char* role, const std::optional<Operand>& operand) -> const float* {
    if (!operand) return nullptr;
    check.require_apart(role, *operand, y);
    return check.f32(role, *operand, 1, n);
  };
  checked.bias = vector("bias", epilogue.bias);
  checked.gamma = vector("gamma", epilogue.gamma);
  checked.beta = vector("beta", epilogue.beta);
  if (epilogue.residual) {
    checked.residual = check.f32_broadcast("residual", *epilogue.residual, m, n, &checked.residual_ld);
    check.require_apart("residual", *epilogue.residual, y);
  }
  return checked;
}

LinearArgs ProgramBuilder::linear_args(const OperandCheck& check, const Operand& x, const Operand& y,
                                       const EpilogueOperands& epilogue) const {
  LinearArgs args;
  args.m = x.rows;
  args.n = y.cols;
  args.k = x.cols;
  args.x = check.f32("x", x, args.m, args.k);
  args.x_ld = x.ld;
  args.y = check.output(y, args.m, args.n);
  args.y_ld = y.ld;
  check.require_apart("x", x, y);
  args.epilogue = checked_epilogue(check, epilogue, y, args.m, args.n);
  args.block_rows = sharing_.block_rows;
  return args;
}

void ProgramBuilder::linear(const std::string& label, const Operand& x, std::shared_ptr<const PackedWeights> weights,
                            const Operand& y, const EpilogueOperands& epilogue) {
  const OperandCheck check = this->check(label);
  check_weights(check, weights, y.cols, x.cols);
  check.require(weights->winograd().side == 0, "weights are packed for a convolution by Winograd's method");
  LinearArgs args = linear_args(check, x, y, epilogue);
  args.packed = weights->data();
  args.bf16 = weights->bf16();
  if (weights->strassen()) {
    int64_t& scratch = program_.workspace.per_thread;
    scratch = std::max(scratch, kernels_.strassen_scratch(args));
    add(label, StrassenRecord{args, cut_strassen(kernels_, args.m, args.n, args.k, sharing(y))});
  } else {
    const Grid grid = cut_linear(kernels_, args.m, args.n, args.k, sharing(y));
    add(label, LinearRecord{args, !weights->rows(), grid});
  }
  keep(x);
  keep(epilogue);
  program_.weights.push_back(std::move(weights));
}

Conv2dArgs ProgramBuilder::conv2d_args(const OperandCheck& check, const Operand& x, const ImageSize& in,
                                       const Window& window, const Operand& y, const ImageSize& out,
                                       const EpilogueOperands& epilogue) const {
  check_window(check, in, window, out);
  check.require_positive("x", x.cols);
  Conv2dArgs args;
  args.x = check.f32("x", x, in.height * in.width, x.cols);
  check.require_dense("x", x);
  args.in_h = in.height;
  args.in_w = in.width;
  args.in_c = x.cols;
  args.y = check.output(y, out.height * out.width, y.cols);
  args.y_ld = y.ld;
  args.out_h = out.height;
  args.out_w = out.width;
  args.out_c = y.cols;
  args.kernel_h = window.kernel.height;
  args.kernel_w = window.kernel.width;
  args.stride_h = window.stride.down;
  args.stride_w = window.stride.right;
  args.pad_top = window.padding.top;
  args.pad_bottom = window.padding.bottom;
  args.pad_left = window.padding.left;
  args.pad_right = window.padding.right;
  args.dilation = window.dilation;
  check.require_apart("x", x, y);
  args.epilogue = checked_epilogue(check, epilogue, y, y.rows, y.cols);
  args.block_rows = sharing_.block_rows;
  return args;
}

void ProgramBuilder::conv2d(const std::string& label, const Operand& x, ImageSize in,
                            std::shared_ptr<const PackedWeights> weights, const Window& window, const Operand& y,
                            ImageSize out, const EpilogueOperands& epilogue) {
  const OperandCheck check = this->check(label);
  Conv2dArgs args = conv2d_args(check, x, in, window, y, out, epilogue);
  check_weights(check, weights, y.cols, window.kernel.height * window.kernel.width * x.cols);
  check.require(!weights->rows(), "weights are kept row by row, as only a linear layer reads them");
  check.require(!weights->strassen(), "weights are packed for Strassen's method, as only a linear layer reads them");
  const WinogradForm& form = weights->winograd();
  const std::string side = std::to_string(form.kernel);
  const bool fits = window.kernel.height == form.kernel && window.kernel.width == form.kernel &&
                    window.stride.down == form.stride && window.stride.right == form.stride && window.dilation == 1;
  check.require(form.side == 0 || fits, "weights are packed for Winograd's method with " + side + "x" + side +
                                            " kernels, stride " + std::to_string(form.stride) + " and dilation 1");
  args.packed = weights->data();
  args.bf16 = weights->bf16();
  add_conv2d(label, args, *weights);
  keep(x);
  keep(epilogue);
  program_.weights.push_back(std::move(weights));
}

void ProgramBuilder::add_conv2d(const std::string& label, const Conv2dArgs& args, const PackedWeights& weights) {
  const WinogradForm& form = weights.winograd();
  const Sharing sharing = sharing_for(args.out_h * args.out_w * args.out_c);
  int64_t& scratch = program_.workspace.per_thread;
  if (form.side == 0) {
    scratch = std::max(scratch, kernels_.conv2d_scratch(args));
    const Grid grid = cut_conv2d(kernels_, args.out_h * args.out_w, args.out_c, weights.k(), sharing);
    add(label, Conv2dRecord{args, grid});
    return;
  }
  scratch = std::max(scratch, kernels_.winograd_scratch(form, args));
  const int64_t tiles = ceil_div(args.out_h, form.side) * ceil_div(args.out_w, form.tile_width());
  add(label, WinogradRecord{args, form, cut_winograd(kernels_, tiles, args.out_c, args.in_c, form, sharing)});
}

void ProgramBuilder::conv2d_flat(const std::string& label, const Operand& x, ImageSize in,
                                 std::shared_ptr<const PackedWeights> weights, const Window& window, const Operand& y,
                                 ImageSize out, const EpilogueOperands& epilogue) {
  const OperandCheck check = this->check(label);
  FlatConv2dRecord record;
  record.args = conv2d_args(check, x, in, window, y, out, epilogue);
  LinearArgs& product = record.product;
  product.m = out.height * out.width;
  product.n = y.cols;
  product.k = window.kernel.height * window.kernel.width * x.cols;
  check_weights(check, weights, product.n, product.k);
  check.require(weights->winograd().side == 0, "weights are packed for Winograd's method");
  check.require(!weights->rows(), "weights are kept row by row, as only a linear layer reads them");
  check.require(!weights->strassen(), "weights are packed for Strassen's method, as only a linear layer reads them");
  product.x_ld = product.k;
  product.packed = weights->data();
  product.bf16 = weights->bf16();
  product.y = record.args.y;
  product.y_ld = record.args.y_ld;
  product.epilogue = record.args.epilogue;
  product.block_rows = record.args.block_rows;
  record.gather_chunks = chunk_count(product.m, product.k * kCopyCost, sharing(y));
  record.grid = cut_linear(kernels_, product.m, product.n, product.k, sharing(y));
  int64_t& shared = program_.workspace.shared;
  shared = std::max(shared, product.m * product.k);
  keep(x);
  keep(epilogue);
  program_.weights.push_back(std::move(weights));
  add(label, record);
}

void ProgramBuilder::max_pool2d(const std::string& label, const Operand& x, ImageSize in, const Window& window,
                                const Operand& y, ImageSize out) {
  const OperandCheck check = this->check(label);
  check_window(check, in, window, out);
  check.require(window.kernel.height == window.kernel.width, "the window is not square");
  check.require(window.dilation == 1, "a dilated window");
  check.require(window.stride.down == window.stride.right && window.padding.even(),
                "stride or padding are not the same on all sides");
  check.require(2 * window.padding.top <= window.kernel.height, "padding of more than half the window");
  MaxPool2dRecord record;
  MaxPool2dArgs& args = record.args;
  args.x = check.f32("x", x, in.height * in.width, y.cols);
  check.require_dense("x", x);
  args.in_h = in.height;
  args.in_w = in.width;
  args.channels = y.cols;
  args.y = check.output(y, out.height * out.width, y.cols);
  check.require_dense("output", y);
  args.out_h = out.height;
  args.out_w = out.width;
  args.kernel = window.kernel.height;
  args.stride = window.stride.down;
  args.padding = window.padding.top;
  check.require_apart("x", x, y);
  record.chunks = chunk_count(out.height, out.width * y.cols * window.kernel.height * kCopyCost, sharing(y));
  keep(x);
  add(label, record);
}

void ProgramBuilder::attention(const std::string& label, const Operand& q, const Operand& k, const Operand& v,
                               const std::optional<Operand>& bias, const Operand& y, const Heads& heads,
                               AttentionMethod method) {
  const OperandCheck check = this->check(label);
  check.require_positive("heads", heads.query);
  check.require_positive("key-value heads", heads.key_value);
  check.require(heads.query % heads.key_value == 0 && q.cols % heads.query == 0,
                "q of " + std::to_string(q.cols) + " columns does not divide into " + std::to_string(heads.query) +
                    " heads over " + std::to_string(heads.key_value) + " key-value heads");
  AttentionRecord record;
  AttentionArgs& args = record.args;
  args.queries = q.rows;
  args.keys = k.rows;
  args.heads = heads.query;
  args.kv_heads = heads.key_value;
  args.head_dim = q.cols / heads.query;
  args.scale = heads.scale;
  args.q = check.f32("q", q, q.rows, q.cols);
  args.q_ld = q.ld;
  args.k = check.f32("k", k, args.keys, args.kv_heads * args.head_dim);
  args.k_ld = k.ld;
  args.v = check.f32("v", v, args.keys, args.kv_heads * args.head_dim);
  args.v_ld = v.ld;
  args.y = check.output(y, q.rows, q.cols);
  args.y_ld = y.ld;
  check.require_apart("q", q, y);
  check.require_apart("k", k, y);
  check.require_apart("v", v, y);
  if (bias) {
    const bool shared = bias->rows == args.queries;
    args.bias = check.f32("bias", *bias, (shared ? 1 : args.heads) * args.queries, args.keys);
    args.bias_head = shared ? 0 : args.queries * args.keys;
    check.require_dense("bias", *bias);
    check.require_apart("bias", *bias, y);
    keep(*bias);
  }
  record.packs = method == AttentionMethod::kMaterialized || !kernels_.attention_unpacked_fits(args);
  record.tile_rows = record.packs ? kernels_.tile_rows : kernels_.vector_width;
  constexpr int64_t kLine = kAlignment / sizeof(float);
  record.head_stride = ceil_div(kernels_.attention_packed_size(args), kLine) * kLine;
  record.pack_chunks = chunk_count(args.kv_heads, 2 * args.keys * args.head_dim * kCopyCost, sharing(y));
  const int64_t tiles = ceil_div(args.queries, record.tile_rows);
  const int64_t chunks = chunk_count(args.heads * tiles, 4 * record.tile_rows * args.keys * args.head_dim, sharing(y));
  record.query_chunks = query_chunks(chunks, args.heads, tiles, sharing(y).threads);
  record.method = method;
  record.threads = sharing_.threads;
  WorkspaceNeed need;
  if (method == AttentionMethod::kMaterialized) {
    record.scores_stride = kernels_.attention_scores_size(args);
    need.shared = args.kv_heads * record.head_stride + args.heads * record.scores_stride;
  } else if (!record.packs) {
    need.per_thread = kernels_.attention_unpacked_scratch(args);
  } else {
    need.shared = record.threads * static_cast<int64_t>(sizeof(PackedHead) / sizeof(float));
    need.per_thread = record.head_stride + kernels_.attention_scratch(args);
  }
  WorkspaceNeed& most = program_.workspace;
  most = {std::max(most.shared, need.shared), std::max(most.per_thread, need.per_thread)};
  for (const Operand* operand : {&q, &k, &v}) keep(*operand);
  add(label, record);
}

void ProgramBuilder::layer_norm(const std::string& label, const Operand& x, const Operand& weight,
                                const Operand& bias, float eps, const Operand& y) {
  const OperandCheck check = this->check(label);
  NormRecord record;
  record.args = NormArgs{check.f32("x", x, y.rows, y.cols), x.ld, check.f32("weight", weight, 1, y.cols),
                         check.f32("bias", bias, 1, y.cols), check.output(y, y.rows, y.cols), y.ld, y.cols, eps};
  check.require_apart_or_same("x", x, y);
  check.require_apart("weight", weight, y);
  check.require_apart("bias", bias, y);
  record.norm = Norm::kLayer;
  record.rows = y.rows;
  record.chunks = chunk_count(y.rows, y.cols * kCopyCost, sharing(y));
  for (const Operand* operand : {&x, &weight, &bias}) keep(*operand);
  add(label, record);
}

void ProgramBuilder::rms_norm(const std::string& label, const Operand& x, const Operand& weight, float eps,
                              const Operand& y) {
  const OperandCheck check = this->check(label);
  NormRecord record;
  record.args = NormArgs{check.f32("x", x, y.rows, y.cols), x.ld, check.f32("weight", weight, 1, y.cols), nullptr,
                         check.output(y, y.rows, y.cols), y.ld, y.cols, eps};
  check.require_apart_or_same("x", x, y);
  check.require_apart("weight", weight, y);
  record.norm = Norm::kRms;
  record.rows = y.rows;
  record.chunks = chunk_count(y.rows, y.cols * kCopyCost, sharing(y));
  for (const Operand* operand : {&x, &weight}) keep(*operand);
  add(label, record);
}

void ProgramBuilder::binary(const std::string& label, Binary op, const Operand& a, const Operand& b,
                            const Operand& y) {
  const OperandCheck check = this->check(label);
  check.require(op >= Binary::kAdd && op <= kLastBinary, "unknown binary operation");
  BinaryRecord record;
  BinaryArgs& args = record.args;
  args.a = check.f32("a", a, y.rows, y.cols);
  args.a_ld = a.ld;
  args.b_value = b.cols == 1 && y.cols > 1;
  args.b = check.f32_broadcast("b", b, y.rows, args.b_value ? 1 : y.cols, &args.b_ld);
  args.y = check.output(y, y.rows, y.cols);
  args.y_ld = y.ld;
  args.cols = y.cols;
  args.op = op;
  check.require_apart_or_same("a", a, y);
  check.require_apart_or_same("b", b, y);
  record.rows = y.rows;
  record.chunks = chunk_count(y.rows, y.cols * kCopyCost, sharing(y));
  keep(a);
  keep(b);
  add(label, record);
}

void ProgramBuilder::pointwise(const std::string& label, const Operand& x, Activation activation,
                               const std::optional<Operand>& gamma, const std::optional<Operand>& beta,
                               const Operand& y) {
  const OperandCheck check = this->check(label);
  check.require(known(activation), "unknown activation");
  check.require(gamma.has_value() == beta.has_value(), "gamma and beta go together");
  PointwiseRecord record;
  PointwiseArgs& args = record.args;
  args.x = check.f32("x", x, y.rows, y.cols);
  args.x_ld = x.ld;
  args.y = check.output(y, y.rows, y.cols);
  args.y_ld = y.ld;
  args.cols = y.cols;
  args.activation = activation;
  check.require_apart_or_same("x", x, y);
  if (gamma) {
    args.gamma = check.f32("gamma", *gamma, 1, y.cols);
    args.beta = check.f32("beta", *beta, 1, y.cols);
    check.require_apart("gamma", *gamma, y);
    check.require_apart("beta", *beta, y);
    keep(*gamma);
    keep(*beta);
  }
  record.rows = y.rows;
  record.chunks = chunk_count(y.rows, y.cols * pointwise_cost(activation), sharing(y));
  keep(x);
  add(label, record);
}

void ProgramBuilder::mean_rows(const std::string& label, const Operand& x, const Operand& y) {
  const OperandCheck check = this->check(label);
  const MeanRowsRecord record{check.f32("x", x, x.rows, y.cols), x.ld, x.rows, check.output(y, 1, y.cols), y.cols};
  check.require_apart("x", x, y);
  keep(x);
  add(label, record);
}

void ProgramBuilder::lookup_u8(const std::string& label, const Operand& x, const Operand& table, const Operand& y) {
  const OperandCheck check = this->check(label);
  LookupRecord record;
  record.x = reinterpret_cast<const uint8_t*>(check.input("x", x, DType::kU8, y.rows, y.cols));
  record.table = check.f32("table", table, y.cols, 256);
  record.channels = y.cols;
  record.y = check.output(y, y.rows, y.cols);
  record.pixels = y.rows;
  check.require_dense("x", x);
  check.require_dense("table", table);
  check.require_dense("output", y);
  check.require_apart("x", x, y);
  check.require_apart("table", table, y);
  record.chunks = chunk_count(y.rows, y.cols * kCopyCost, sharing(y));
  keep(x);
  keep(table);
  add(label, record);
}

void ProgramBuilder::embedding(const std::string& label, const Operand& table, const Operand& ids, const Operand& y) {
  const OperandCheck check = this->check(label);
  EmbeddingRecord record;
  EmbeddingArgs& args = record.args;
  args.table = check.f32("table", table, table.rows, y.cols);
  args.table_ld = table.ld;
  args.ids = reinterpret_cast<const int32_t*>(check.input("ids", ids, DType::kI32, 1, y.rows));
  args.y = check.output(y, y.rows, y.cols);
  args.y_ld = y.ld;
  args.cols = y.cols;
  record.table_rows = table.rows;
  record.rows = y.rows;
  check.require_apart("table", table, y);
  check.require_apart("ids", ids, y);
  record.chunks = chunk_count(y.rows, y.cols * kCopyCost, sharing(y));
  keep(table);
  keep(ids);
  add(label, record);
}

}  // namespace vla
