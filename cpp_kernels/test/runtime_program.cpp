// What a program refuses: every operand is checked when its operation is added.
#include <functional>

#include "check.hpp"
#include "runtime/dispatch.hpp"
#include "runtime/int8_dispatch.hpp"
#include "runtime/program_builder.hpp"

using namespace vla;

namespace {

constexpr int64_t kArenaBytes = 1 << 16;

class Fixture {
 public:
  Fixture() : pool(PoolOptions{1, {}, 0}), arena(std::make_shared<Arena>(kArenaBytes)) {}

  ProgramBuilder builder() { return ProgramBuilder(kernels, int8_kernels, {2}, arena); }
  std::shared_ptr<const PackedWeights> weights(int64_t n, int64_t k) {
    const std::vector<float> values(static_cast<std::size_t>(n * k), 0.5f);
    return std::make_shared<const PackedWeights>(kernels, pool, values.data(), n, k);
  }

  const KernelTable& kernels = select_kernels("portable");
  const Int8Table& int8_kernels = select_int8("portable", "portable");
  ThreadPool pool;
  std::shared_ptr<Arena> arena;
};

// rows x cols floats at byte `offset` of the arena.
Operand at(int64_t offset, int64_t rows, int64_t cols, int64_t ld = 0) {
  return Operand{nullptr, offset, rows, cols, ld == 0 ? cols : ld, DType::kF32};
}

Operand of(Operand operand, DType dtype) {
  operand.dtype = dtype;
  return operand;
}

Operand constant(int64_t rows, int64_t cols, DType dtype = DType::kF32) {
  const std::vector<float> values(static_cast<std::size_t>(rows * cols));
  return Operand{Constant::copy(values.data(), rows * cols, dtype), 0, rows, cols, cols, dtype};
}

// The message that adding an operation ends in; empty where it is accepted.
std::string refusal(const std::function<void(ProgramBuilder&)>& add) {
  Fixture fixture;
  ProgramBuilder builder = fixture.builder();
  try {
    add(builder);
  } catch (const ProgramError& error) {
    return error.what();
  }
  return "";
}

void check_refused(const char* what, const std::function<void(ProgramBuilder&)>& add) {
  const std::string message = refusal(add);
  if (message.find("op 'probe'") != 0 || message.find(what) == std::string::npos) {
    check::fail(__FILE__, __LINE__, std::string("expected a refusal that says '") + what + "', got '" + message + "'");
  }
}

// Places of a linear layer of 4 x 8 -> 4 x 16, each a kilobyte from the next.
constexpr int64_t kX = 0;
constexpr int64_t kY = 1024;
constexpr int64_t kOther = 2048;

std::function<void(ProgramBuilder&)> linear(const Operand& x, const Operand& y, const EpilogueOperands& epilogue = {},
                                            int64_t n = 16, int64_t k = 8) {
  return [=](ProgramBuilder& builder) { builder.linear("probe", x, Fixture().weights(n, k), y, epilogue); };
}

EpilogueOperands with_residual(const Operand& residual) {
  EpilogueOperands epilogue;
  epilogue.residual = residual;
  return epilogue;
}

using Adder = std::function<void(ProgramBuilder&)>;

constexpr void (ProgramBuilder::*kConv2d)(const std::string&, const Operand&, ImageSize,
                                          std::shared_ptr<const PackedWeights>, const Window&, const Operand&,
                                          ImageSize, const EpilogueOperands&) = &ProgramBuilder::conv2d;

Adder conv2d(const Operand& x, ImageSize in, const Window& window, const Operand& y, ImageSize out, int64_t k = 27) {
  return [=](ProgramBuilder& builder) { builder.conv2d("probe", x, in, Fixture().weights(16, k), window, y, out, {}); };
}

}  // namespace

TEST(what_fits_is_accepted) {
  CHECK(refusal(linear(at(kX, 4, 8), at(kY, 4, 16))).empty());
  CHECK(refusal(linear(at(kX, 4, 8, 20), at(kY, 4, 16, 30))).empty());
  CHECK(refusal(linear(constant(4, 8), at(kY, 4, 16), with_residual(at(kOther, 1, 16)))).empty());
  CHECK(refusal(conv2d(at(kX, 16, 3), {4, 4}, {{3, 3}, 1, 1, 1}, at(kY, 16, 16), {4, 4})).empty());
  CHECK(refusal(linear(at(kX, 4, 8), at(kArenaBytes - 4 * 16 * 4, 4, 16))).empty());
}

TEST(memory_is_not_exceeded) {
  check_refused("outside the arena", linear(at(kX, 4, 8), at(kArenaBytes - 4 * 16 * 4 + 4, 4, 16)));
  check_refused("outside the arena", linear(at(-64, 4, 8), at(kY, 4, 16)));
  check_refused("outside the arena", linear(at(kArenaBytes, 4, 8), at(kY, 4, 16)));
  check_refused("outside the arena", linear(at(int64_t{1} << 62, 4, 8), at(kY, 4, 16)));
  check_refused("outside the arena", linear(at(INT64_MAX - 3, 4, 8), at(kY, 4, 16)));
  check_refused("outside the arena", linear(at(kX, 4, 8, (int64_t{1} << 31) - 1), at(kY, 4, 16)));
  check_refused("not aligned", linear(at(kX + 2, 4, 8), at(kY, 4, 16)));
  Operand beyond = constant(4, 8);
  beyond.offset = 4;
  check_refused("outside the constant of 128 bytes", linear(beyond, at(kY, 4, 16)));
}

TEST(shapes_must_fit) {
  check_refused("weights are 16x9, expected 16x8", linear(at(kX, 4, 8), at(kY, 4, 16), {}, 16, 9));
  check_refused("output is 5x16, expected 4x16", linear(at(kX, 4, 8), at(kY, 5, 16)));
  check_refused("expected at least 1", linear(at(kX, 0, 8), at(kY, 0, 16)));
  check_refused("expected at least 1", linear(at(kX, -4, 8), at(kY, -4, 16)));
  check_refused("rows of 8 only 5 apart", linear(at(kX, 4, 8, 5), at(kY, 4, 16)));
  check_refused("expected at least 1", linear(at(kX, 4, 8, -8), at(kY, 4, 16)));
  check_refused("residual is 3x16, expected 4x16", linear(at(kX, 4, 8), at(kY, 4, 16), with_residual(at(kOther, 3, 16))));
  EpilogueOperands epilogue;
  epilogue.bias = at(kOther, 1, 15);
  check_refused("bias is 1x15, expected 1x16", linear(at(kX, 4, 8), at(kY, 4, 16), epilogue));
  epilogue = {};
  epilogue.gamma = at(kOther, 1, 16);
  check_refused("gamma and beta go together", linear(at(kX, 4, 8), at(kY, 4, 16), epilogue));
  epilogue = {};
  epilogue.activation = static_cast<Activation>(17);
  check_refused("unknown activation", linear(at(kX, 4, 8), at(kY, 4, 16), epilogue));
}

TEST(types_must_fit) {
  check_refused("x is uint8, expected float32", linear(of(at(kX, 4, 8), DType::kU8), at(kY, 4, 16)));
  check_refused("output is int32, expected float32", linear(at(kX, 4, 8), of(at(kY, 4, 16), DType::kI32)));
  check_refused("reads a int32 constant as float32", linear(of(constant(4, 8, DType::kI32), DType::kF32), at(kY, 4, 16)));
  check_refused("the output is in a constant", linear(at(kX, 4, 8), constant(4, 16)));
  check_refused("ids is float32, expected int32", [](ProgramBuilder& builder) {
    builder.embedding("probe", constant(10, 16), at(kX, 1, 4), at(kY, 4, 16));
  });
}

TEST(weights_must_be_there_and_for_these_kernels) {
  check_refused("no weights", [](ProgramBuilder& builder) {
    builder.linear("probe", at(kX, 4, 8), std::shared_ptr<const PackedWeights>(), at(kY, 4, 16), {});
  });
  const KernelTable& best = select_kernels("");
  if (best.isa == std::string("portable")) return;
  check_refused("weights are packed for", [&](ProgramBuilder& builder) {
    ThreadPool pool(PoolOptions{1, {}, 0});
    const std::vector<float> values(16 * 8);
    const auto foreign = std::make_shared<const PackedWeights>(best, pool, values.data(), 16, 8);
    builder.linear("probe", at(kX, 4, 8), foreign, at(kY, 4, 16), {});
  });
}

TEST(int8_weights_fit_only_their_layers_and_kernels) {
  ThreadPool pool(PoolOptions{1, {}, 0});
  const std::vector<float> values(16 * 27, 0.5f);
  const auto weights = [&](const Int8Table& kernels, Int8Runs runs) {
    return std::make_shared<const Int8Weights>(kernels, pool, values.data(), 16, runs);
  };
  const Int8Table& portable = select_int8("portable", "portable");
  const auto linear = [&](std::shared_ptr<const Int8Weights> packed, int64_t k) {
    return [=](ProgramBuilder& builder) { builder.linear("probe", at(kX, 4, k), packed, at(kY, 4, 16), {}); };
  };
  const auto convolve = [&](Int8Runs runs, int64_t dilation) {
    return [=, &portable](ProgramBuilder& builder) {
      const Window window{{3, 3}, 1, dilation, dilation};
      builder.conv2d("probe", at(kX, 36, 3), {6, 6}, weights(portable, runs), window, at(kY, 36, 16), {6, 6}, {});
    };
  };
  CHECK(refusal(linear(weights(portable, {1, 27}), 27)).empty());
  CHECK(refusal(convolve({3, 9}, 1)).empty());
  CHECK(refusal(convolve({9, 3}, 2)).empty());
  check_refused("no weights", linear(nullptr, 8));
  check_refused("INT8 weights are 16x1x27, expected 16x1x26", linear(weights(portable, {1, 27}), 26));
  check_refused("INT8 weights are 16x3x9, expected 16x1x27", linear(weights(portable, {3, 9}), 27));
  check_refused("INT8 weights are 16x3x9, expected 16x9x3", convolve({3, 9}, 2));
  check_refused("INT8 weights are 16x9x3, expected 16x3x9", convolve({9, 3}, 1));
  if (available_int8().size() < 2) return;
  const Int8Table& other = select_int8(available_int8().front(), "");
  const std::string expected = std::string("packed for the INT8 kernels ") + other.name + ", the program runs on portable";
  check_refused(expected.c_str(), linear(weights(other, {1, 27}), 27));
}

TEST(int8_weights_are_of_a_size_that_sums_can_take) {
  ThreadPool pool(PoolOptions{1, {}, 0});
  const auto refused = [&](int64_t n, Int8Runs runs) -> std::string {
    try {
      Int8Weights(select_int8("portable", "portable"), pool, nullptr, n, runs);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refused(0, {1, 8}).find("got 0 channels of 1x8 weights, expected positive sizes") != std::string::npos);
  CHECK(refused(4, {-1, 8}).find("got 4 channels of -1x8") != std::string::npos);
  for (const Int8Runs runs : {Int8Runs{1, kInt8MaxDepth + 1}, Int8Runs{2, kInt8MaxDepth / 2 + 1},
                              Int8Runs{int64_t{1} << 40, int64_t{1} << 40}}) {
    CHECK(refused(4, runs).find("expected at most 133144, whose sum of products 32 bits always hold") !=
          std::string::npos);
  }
}

TEST(int8_filters_for_winograd_fit_only_their_convolutions_and_kernels) {
  ThreadPool pool(PoolOptions{1, {}, 0});
  const std::vector<float> values(16 * 27, 0.5f);
  const auto pack = [&](const Int8Table& kernels, Int8Runs runs) {
    return std::make_shared<const Int8Weights>(kernels, pool, values.data(), 16, runs, true);
  };
  const auto refused = [&](const Int8Table& kernels, Int8Runs runs) -> std::string {
    try {
      pack(kernels, runs);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  const char* expected = "Winograd's method takes 3x3 filters on kernels with products of 16 bits";
  CHECK(refused(select_int8("portable", "portable"), {3, 9}).find(expected) != std::string::npos);
  const std::vector<std::string> names = available_int8();
  if (std::find(names.begin(), names.end(), "avx2") == names.end()) return;
  const Int8Table& avx2 = select_int8("avx2", "avx2");
  CHECK(refused(avx2, {9, 3}).find(expected) != std::string::npos);
  CHECK(refused(avx2, {3, 8}).find(expected) != std::string::npos);
  const KernelTable& kernels = select_kernels("avx2");
  const auto convolve = [&](const Window& window, ImageSize out) -> std::string {
    ProgramBuilder builder(kernels, avx2, Sharing{}, std::make_shared<Arena>(int64_t{1} << 20));
    try {
      builder.conv2d("probe", at(kX, 36, 3), {6, 6}, pack(avx2, {3, 9}), window, at(kY, out.height * out.width, 16), out, {});
    } catch (const ProgramError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(convolve({{3, 3}, 1, 1, 1}, {6, 6}).empty());
  CHECK(convolve({{3, 3}, 2, 1, 1}, {3, 3}).find("with 3x3 kernels, stride 1 and dilation 1") != std::string::npos);
}

TEST(filters_for_winograd_fit_only_their_convolutions) {
  const auto convolve = [](Window window, ImageSize out, WinogradForm form) {
    return [=](ProgramBuilder& builder) {
      Fixture fixture;
      const int64_t k = window.kernel.height * window.kernel.width * 3;
      const std::vector<float> values(static_cast<std::size_t>(16 * k), 0.5f);
      const auto filters = std::make_shared<const PackedWeights>(fixture.kernels, fixture.pool, values.data(), 16, k, WeightForm{form});
      builder.conv2d("probe", at(kX, 36, 3), {6, 6}, filters, window, at(kY, out.height * out.width, 16), out, {});
    };
  };
  for (const int64_t side : {2, 4}) {
    CHECK(refusal(convolve({{3, 3}, 1, 1, 1}, {6, 6}, {side})).empty());
    CHECK(refusal(convolve({{3, 3}, 1, 0, 1}, {4, 4}, {side})).empty());
    CHECK(refusal(convolve({{3, 3}, 2, 1, 1}, {3, 3}, {side, 3, 2})).empty());
    check_refused("packed for Winograd's method", convolve({{3, 3}, 2, 1, 1}, {3, 3}, {side}));
    check_refused("packed for Winograd's method", convolve({{3, 3}, 1, 1, 1}, {6, 6}, {side, 3, 2}));
    check_refused("packed for Winograd's method", convolve({{3, 3}, 1, 2, 2}, {6, 6}, {side}));
    check_refused("packed for Winograd's method", convolve({{3, 3}, {1, 2}, 1, 1}, {6, 3}, {side}));
    check_refused("packed for Winograd's method", convolve({{1, 9}, 1, 4, 1}, {14, 6}, {side}));
  }
  CHECK(refusal(convolve({{7, 7}, 2, 3, 1}, {3, 3}, {4, 7, 2})).empty());
  check_refused("packed for Winograd's method with 7x7 kernels", convolve({{7, 7}, 3, 3, 1}, {2, 2}, {4, 7, 2}));
  check_refused("packed for a convolution", [](ProgramBuilder& builder) {
    Fixture fixture;
    const std::vector<float> values(16 * 9, 0.5f);
    const auto filters = std::make_shared<const PackedWeights>(fixture.kernels, fixture.pool, values.data(), 16, 9, WeightForm{{2}});
    builder.linear("probe", at(kX, 4, 9), filters, at(kY, 4, 16), {});
  });
  check_refused("packed for Winograd's method", [](ProgramBuilder& builder) {
    Fixture fixture;
    const std::vector<float> values(16 * 27, 0.5f);
    const auto filters = std::make_shared<const PackedWeights>(fixture.kernels, fixture.pool, values.data(), 16, 27, WeightForm{{2}});
    builder.conv2d_flat("probe", at(kX, 36, 3), {6, 6}, filters, {{3, 3}, 1, 1, 1}, at(kY, 36, 16), {6, 6}, {});
  });
}

// A convolution with weights in this form is refused, flat or not.
void check_only_linear(const char* message, const WeightForm& form) {
  for (const bool flat : {false, true}) {
    check_refused(message, [=](ProgramBuilder& builder) {
      Fixture fixture;
      const int64_t outputs = 2 * fixture.kernels.tile_cols;
      const std::vector<float> values(static_cast<std::size_t>(outputs * 32), 0.5f);
      const auto filters =
          std::make_shared<const PackedWeights>(fixture.kernels, fixture.pool, values.data(), outputs, 32, form);
      const auto add = flat ? &ProgramBuilder::conv2d_flat : kConv2d;
      (builder.*add)("probe", at(kX, 4, 32), {2, 2}, filters, {{1, 1}, 1, 0, 1}, at(kY, 4, outputs), {2, 2}, {});
    });
  }
}

TEST(weights_row_by_row_and_for_strassens_method_are_for_linear_layers) {
  WeightForm rows, strassen;
  rows.rows = strassen.strassen = true;
  check_only_linear("weights are kept row by row", rows);
  check_only_linear("weights are packed for Strassen's method", strassen);
}

TEST(the_output_shares_no_memory_with_what_is_read) {
  check_refused("x shares memory with the output", linear(at(kX, 4, 8), at(kX + 64, 4, 16)));
  check_refused("residual shares memory", linear(at(kX, 4, 8), at(kY, 4, 16), with_residual(at(kY, 4, 16))));
  // Columns of one matrix may be apart although their rows interleave.
  CHECK(refusal(linear(at(kX, 4, 8, 24), at(kX + 8 * 4, 4, 16, 24))).empty());
  CHECK(refusal(linear(at(kX + 16 * 4, 4, 8, 24), at(kX, 4, 16, 24))).empty());
  check_refused("x shares memory", linear(at(kX, 4, 8, 24), at(kX + 7 * 4, 4, 16, 24)));
  check_refused("x shares memory", linear(at(kX, 4, 8, 24), at(kX + 9 * 4, 4, 16, 24)));
  // Element by element, in place is fine, and shifted is not.
  const auto relu = [](int64_t from) {
    return [=](ProgramBuilder& b) { b.pointwise("probe", at(from, 4, 8), Activation::kRelu, {}, {}, at(kY, 4, 8)); };
  };
  CHECK(refusal(relu(kY)).empty());
  check_refused("x shares memory", relu(kY + 4));
}

TEST(windows_must_fit) {
  const Operand x = at(kX, 16, 3);
  const Operand y = at(kY, 16, 16);
  check_refused("output image is 4x4, expected 2x2", conv2d(x, {4, 4}, {{3, 3}, 1, 0, 1}, y, {4, 4}));
  check_refused("larger than the image", conv2d(x, {4, 4}, {{3, 3}, 1, 0, 4}, y, {1, 1}));
  check_refused("kernel side, stride or dilation is 0", conv2d(x, {4, 4}, {{3, 3}, 0, 1, 1}, y, {4, 4}));
  check_refused("kernel side, stride or dilation is 1073741824",
                conv2d(x, {4, 4}, {{int64_t{1} << 30, int64_t{1} << 30}, 1, 1, 1}, y, {4, 4}));
  check_refused("padding is -1", conv2d(x, {4, 4}, {{3, 3}, 1, -1, 1}, y, {2, 2}));
  check_refused("x is 16x3, expected 20x3", conv2d(x, {5, 4}, {{3, 3}, 1, 1, 1}, at(kY, 20, 16), {5, 4}));
  check_refused("expected them without gaps", conv2d(at(kX, 16, 3, 4), {4, 4}, {{3, 3}, 1, 1, 1}, y, {4, 4}));
  check_refused("weights are 16x28", conv2d(x, {4, 4}, {{3, 3}, 1, 1, 1}, y, {4, 4}, 28));
  const auto pool = [](const Window& window, ImageSize out) {
    return [=](ProgramBuilder& b) {
      b.max_pool2d("probe", at(kX, 16, 3), {4, 4}, window, at(kY, out.height * out.width, 3), out);
    };
  };
  CHECK(refusal(pool({{2, 2}, 2, 0, 1}, {2, 2})).empty());
  check_refused("padding of more than half the window", pool({{2, 2}, 2, 2, 1}, {4, 4}));
  check_refused("not square", pool({{2, 3}, 1, 0, 1}, {3, 2}));
  check_refused("not the same on all sides", pool({{2, 2}, {1, 2}, 0, 1}, {3, 2}));
  check_refused("not the same on all sides", pool({{2, 2}, 2, {0, 1, 0, 0}, 1}, {2, 2}));
  const Operand wide = at(kY, 8, 16);
  CHECK(refusal(conv2d(x, {4, 4}, {{1, 3}, {1, 2}, {0, 0, 1, 0}, 1}, wide, {4, 2}, 9)).empty());
  check_refused("output image is 4x2, expected 2x2", conv2d(x, {4, 4}, {{1, 3}, 2, {0, 0, 1, 0}, 1}, wide, {4, 2}, 9));
  check_refused("padding is -1", conv2d(x, {4, 4}, {{1, 3}, 1, {0, 0, -1, 1}, 1}, wide, {4, 2}, 9));
}

TEST(attention_must_fit) {
  const auto attention = [](const Operand& q, const Operand& k, const Operand& v, std::optional<Operand> bias,
                            Heads heads) {
    return [=](ProgramBuilder& b) { b.attention("probe", q, k, v, bias, at(8192, q.rows, q.cols), heads); };
  };
  const Operand q = at(0, 5, 16);
  const Operand k = at(1024, 7, 8);
  const Operand v = at(2048, 7, 8);
  CHECK(refusal(attention(q, k, v, at(4096, 4 * 5, 7), {4, 2, 0.5f})).empty());
  check_refused("does not divide into 3 heads", attention(q, k, v, {}, {3, 3, 1.0f}));
  check_refused("over 3 key-value heads", attention(q, k, v, {}, {4, 3, 1.0f}));
  check_refused("k is 7x8, expected 7x16", attention(q, k, v, {}, {4, 4, 1.0f}));
  check_refused("v is 6x8, expected 7x8", attention(q, k, at(2048, 6, 8), {}, {4, 2, 1.0f}));
  CHECK(refusal(attention(q, k, v, at(4096, 5, 7), {4, 2, 1.0f})).empty());
  check_refused("bias is 6x7, expected 20x7", attention(q, k, v, at(4096, 6, 7), {4, 2, 1.0f}));
  check_refused("key-value heads is 0", attention(q, k, v, {}, {4, 0, 1.0f}));
}

TEST(states_must_fit) {
  const auto state = [](const char* isa, int64_t rows) {
    return std::make_shared<KeyValues>(select_kernels(isa), KeyValueShape{rows, 2, 4});
  };
  const auto append = [=](std::shared_ptr<KeyValues> to, const Operand& k, const Operand& v, int64_t positions) {
    return [=](ProgramBuilder& b) { b.append("probe", to, k, v, of(at(8192, 1, positions), DType::kI32)); };
  };
  const Operand k = at(0, 5, 8), v = at(1024, 5, 8);
  CHECK(refusal(append(state("portable", 5), k, v, 5)).empty());
  check_refused("no state", append(nullptr, k, v, 5));
  check_refused("5 rows for a state of 4", append(state("portable", 4), k, v, 5));
  check_refused("v is 5x7, expected 5x8", append(state("portable", 5), k, at(1024, 5, 7), 5));
  check_refused("positions is 1x4, expected 1x5", append(state("portable", 5), k, v, 4));
  const auto attend = [=](std::shared_ptr<KeyValues> to, const Operand& q, const Operand& y, int64_t heads) {
    return [=](ProgramBuilder& b) {
      b.cached_attention("probe", q, to, of(at(8192, 1, q.rows), DType::kI32), y, heads, 1.0f);
    };
  };
  const Operand q = at(0, 3, 16), y = at(2048, 3, 16);
  CHECK(refusal(attend(state("portable", 5), q, y, 4)).empty());
  check_refused("q of 16 columns is not 2 heads of 4", attend(state("portable", 5), q, y, 2));
  check_refused("q of 12 columns is not 3 heads of 4 over 2", attend(state("portable", 5), at(0, 3, 12), at(2048, 3, 12), 3));
  check_refused("q shares memory", attend(state("portable", 5), q, q, 4));
  for (const std::string& isa : available_isas()) {
    if (isa != "portable") check_refused("the state is laid out for", append(state(isa.c_str(), 5), k, v, 5));
  }
  for (const int64_t rows : {0, 1 << 21}) {
    bool refused = false;
    try {
      state("portable", rows);
    } catch (const std::invalid_argument& error) {
      refused = std::string(error.what()).find("expected 1 to 2^20 of each") != std::string::npos;
    }
    CHECK(refused);
  }
}

TEST(other_operations_must_fit) {
  check_refused("weight is 1x7, expected 1x8", [](ProgramBuilder& b) {
    b.layer_norm("probe", at(kX, 4, 8), constant(1, 7), constant(1, 8), 1e-5f, at(kY, 4, 8));
  });
  check_refused("x is 3x8, expected 4x8", [](ProgramBuilder& b) {
    b.rms_norm("probe", at(kX, 3, 8), constant(1, 8), 1e-5f, at(kY, 4, 8));
  });
  check_refused("b is 2x8, expected 4x8", [](ProgramBuilder& b) {
    b.binary("probe", Binary::kAdd, at(kX, 4, 8), at(kOther, 2, 8), at(kY, 4, 8));
  });
  check_refused("unknown binary operation", [](ProgramBuilder& b) {
    b.binary("probe", static_cast<Binary>(9), at(kX, 4, 8), at(kOther, 4, 8), at(kY, 4, 8));
  });
  check_refused("b is 4x2, expected 4x8", [](ProgramBuilder& b) {
    b.binary("probe", Binary::kAdd, at(kX, 4, 8), at(kOther, 4, 2), at(kY, 4, 8));
  });
  check_refused("b is 3x1, expected 4x1", [](ProgramBuilder& b) {
    b.binary("probe", Binary::kAdd, at(kX, 4, 8), at(kOther, 3, 1), at(kY, 4, 8));
  });
  check_refused("output is 2x8, expected 1x8", [](ProgramBuilder& b) {
    b.mean_rows("probe", at(kX, 4, 8), at(kY, 2, 8));
  });
  check_refused("table is 3x255, expected 3x256", [](ProgramBuilder& b) {
    b.lookup_u8("probe", of(at(kX, 4, 3), DType::kU8), constant(3, 255), at(kY, 4, 3));
  });
}

TEST(norms_of_groups_must_fit) {
  const auto norm = [](int64_t groups, int64_t width, Activation activation = Activation::kNone) {
    return [=](ProgramBuilder& b) {
      b.group_norm("probe", at(kX, 4, 8), constant(1, 8), constant(1, width), groups, 1e-5f, activation, at(kY, 4, 8));
    };
  };
  CHECK(refusal(norm(4, 8)).empty());
  check_refused("3 groups of 8 columns", norm(3, 8));
  check_refused("groups is 0", norm(0, 8));
  check_refused("bias is 1x7, expected 1x8", norm(2, 7));
  check_refused("unknown activation", norm(2, 8, static_cast<Activation>(99)));
}

TEST(rotary_positions_must_fit) {
  const auto rotary = [](int64_t heads, const Operand& cos, const Operand& sin) {
    return [=](ProgramBuilder& b) { b.rotary("probe", at(kX, 4, 8), cos, sin, heads, at(kY, 4, 8)); };
  };
  CHECK(refusal(rotary(2, constant(4, 2), at(kOther, 4, 2))).empty());
  check_refused("sin is 3x2, expected 4x2", rotary(2, constant(4, 2), constant(3, 2)));
  check_refused("cos is 4x3, expected 4x2", rotary(2, constant(4, 3), constant(4, 2)));
  check_refused("x of 8 columns does not divide into 3 heads", rotary(3, constant(4, 2), constant(4, 2)));
  check_refused("heads is -1", rotary(-1, constant(4, 2), constant(4, 2)));
}

TEST(axes_must_fit) {
  const auto transpose = [](std::array<int64_t, 3> shape, std::array<int64_t, 3> axes, const Operand& y) {
    return [=](ProgramBuilder& b) { b.transpose("probe", at(kX, 6, 4), shape, axes, y); };
  };
  CHECK(refusal(transpose({2, 3, 4}, {2, 0, 1}, at(kY, 8, 3))).empty());
  check_refused("output is 8x3, expected 12x2", transpose({2, 3, 4}, {2, 1, 0}, at(kY, 8, 3)));
  check_refused("axes are 0, 0, 1, expected 0, 1 and 2", transpose({2, 3, 4}, {0, 0, 1}, at(kY, 8, 3)));
  check_refused("x is 6x4, expected 4x6", transpose({2, 2, 6}, {2, 0, 1}, at(kY, 12, 2)));
  check_refused("an axis is -2", transpose({-2, -3, 4}, {0, 1, 2}, at(kY, 6, 4)));
  check_refused("x shares memory", transpose({2, 3, 4}, {2, 0, 1}, at(kX, 8, 3)));
}

TEST(images_in_another_size_must_fit) {
  const auto resize = [](const Operand& x, ImageSize in, ImageSize out) {
    return [=](ProgramBuilder& b) { b.resize("probe", x, in, at(kY, 6, 3), out); };
  };
  CHECK(refusal(resize(at(kX, 4, 3), {2, 2}, {3, 2})).empty());
  check_refused("output is 6x3, expected 9x3", resize(at(kX, 4, 3), {2, 2}, {3, 3}));
  check_refused("x is 4x3, expected 6x3", resize(at(kX, 4, 3), {2, 3}, {3, 2}));
  check_refused("image side is 0", resize(at(kX, 4, 3), {2, 2}, {0, 2}));
  check_refused("expected them without gaps", resize(at(kX, 4, 3, 5), {2, 2}, {3, 2}));
}

TEST(pixels_made_of_neighbours_must_fit) {
  const auto integers = [](std::vector<int32_t> values, int64_t rows) {
    const auto count = static_cast<int64_t>(values.size());
    return Operand{Constant::copy(values.data(), count, DType::kI32), 0, rows, count / rows, count / rows, DType::kI32};
  };
  const auto resample = [](const Operand& x, ImageSize in, int64_t axis, const Operand& first, const Operand& weights,
                           int64_t rows) {
    return [=](ProgramBuilder& b) {
      b.resample("probe", of(x, DType::kU8), in, axis, first, weights, of(at(kY, rows, 3), DType::kU8));
    };
  };
  const Operand image = at(kX, 12, 3), first = integers({0, 2}, 1), weights = integers({1, 2, 3, 4}, 2);
  CHECK(refusal(resample(image, {4, 3}, 0, first, weights, 6)).empty());
  CHECK(refusal(resample(image, {3, 4}, 1, first, weights, 6)).empty());
  check_refused("output is 6x3, expected 8x3", resample(image, {4, 3}, 1, integers({0, 1}, 1), weights, 6));
  check_refused("x is 12x3, expected 9x3", resample(image, {3, 3}, 0, first, weights, 6));
  check_refused("axis is 2, expected 0 or 1", resample(image, {4, 3}, 2, first, weights, 6));
  check_refused("first is 1x3, expected 1x2", resample(image, {4, 3}, 0, integers({0, 1, 2}, 1), weights, 6));
  check_refused("pixels 3 to 5 of place 1 leave the axis of 4",
                resample(image, {4, 3}, 0, integers({0, 3}, 1), weights, 6));
  check_refused("pixels -1 to 1 of place 0 leave the axis of 4",
                resample(image, {4, 3}, 0, integers({-1, 0}, 1), weights, 6));
  check_refused("weights of place 1 are too large",
                resample(image, {4, 3}, 0, first, integers({0, 0, 1 << 23, 1 << 16}, 2), 6));
  check_refused("expected constants", resample(image, {4, 3}, 0, of(at(kOther, 1, 2), DType::kI32), weights, 6));
  check_refused("x shares memory", resample(at(kY, 12, 3), {4, 3}, 0, first, weights, 6));
}

TEST(copies_keep_the_type) {
  const auto copy = [](DType from, DType to) {
    return [=](ProgramBuilder& b) { b.copy("probe", of(at(kX, 4, 8, 12), from), of(at(kY, 4, 8), to)); };
  };
  for (const DType dtype : {DType::kF32, DType::kU8, DType::kI32}) CHECK(refusal(copy(dtype, dtype)).empty());
  check_refused("output is int32, expected uint8", copy(DType::kU8, DType::kI32));
}

TEST(an_arena_is_needed) {
  bool refused = false;
  try {
    ProgramBuilder builder(select_kernels("portable"), select_int8("portable", "portable"), {1}, nullptr);
  } catch (const ProgramError&) {
    refused = true;
  }
  CHECK(refused);
}

TEST(programs_keep_what_they_need) {
  Fixture fixture;
  std::weak_ptr<const Constant> bias;
  std::shared_ptr<const Program> program;
  {
    ProgramBuilder builder = fixture.builder();
    EpilogueOperands epilogue;
    epilogue.bias = constant(1, 16);
    bias = epilogue.bias->constant;
    builder.linear("probe", at(kX, 4, 8), fixture.weights(16, 8), at(kY, 4, 16), epilogue);
    program = builder.build();
    CHECK(builder.build()->ops.empty());
  }
  CHECK(program->ops.size() == 1 && program->ops[0].label == "probe");
  CHECK(!bias.expired());
  program.reset();
  CHECK(bias.expired());
}

CHECK_MAIN()
