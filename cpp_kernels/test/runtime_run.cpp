// Running programs: results, threads, memory, profile, cancellation.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "check.hpp"
#include "runtime_allocations.hpp"
#include "runtime/dispatch.hpp"
#include "runtime/engine.hpp"
#include "runtime/program_builder.hpp"

using namespace vla;

namespace {

constexpr int64_t kHeight = 24;
constexpr int64_t kWidth = 20;
constexpr int64_t kPixels = kHeight * kWidth;
constexpr int64_t kChannels = 32;
constexpr int64_t kTokens = 40;

std::vector<float> random_floats(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 2000) / 1000.0f - 1.0f;
  return values;
}

// One small network with every kind of operation, large enough that several threads share the work.
class Network {
 public:
  // With `int8`, of two layers in INT8 besides; two instruction sets may round their inputs to different integers.
  explicit Network(const EngineOptions& options, bool int8 = false) : engine(options), arena(std::make_shared<Arena>(int64_t{4} << 20)) {
    ProgramBuilder builder(engine.kernels(), engine.int8_kernels(), engine.sharing(), arena);
    const Operand given = place(kPixels, 3, DType::kU8);
    const Operand image = place(kPixels, 3, DType::kU8);
    builder.resample("resample", given, {kHeight, kWidth}, 1, beside(), halves(), image);
    const Operand pixels = place(kPixels, 3);
    builder.lookup_u8("normalize", image, constant(3, 256), pixels);
    const Operand features = place(kPixels, kChannels);
    EpilogueOperands epilogue;
    epilogue.bias = constant(1, kChannels);
    epilogue.activation = Activation::kRelu;
    epilogue.gamma = constant(1, kChannels);
    epilogue.beta = constant(1, kChannels);
    const ImageSize size{kHeight, kWidth};
    builder.conv2d("conv", pixels, size, weights(kChannels, 27), {{3, 3}, 1, 1, 1}, features, size, epilogue);
    const Operand flat = place(kPixels, kChannels);
    builder.conv2d_flat("flat conv", pixels, size, weights(kChannels, 27), {{3, 3}, 1, 1, 1}, flat, size, epilogue);
    EpilogueOperands added = epilogue;
    added.residual = flat;
    const Operand refined = place(kPixels, kChannels);
    builder.conv2d("winograd2", features, size, weights(kChannels, 9 * kChannels, {2}), {{3, 3}, 1, 1, 1}, refined, size,
                   added);
    builder.conv2d("winograd4", refined, size, weights(kChannels, 9 * kChannels, {4}), {{3, 3}, 1, 1, 1}, features, size,
                   epilogue);
    if (int8) {
      builder.conv2d("int8 conv", refined, size, int8_weights(kChannels, {3, 3 * kChannels}), {{3, 3}, 1, 1, 1},
                     features, size, epilogue);
    }
    const ImageSize half{kHeight / 2, kWidth / 2};
    const Operand pooled = place(kPixels / 4, kChannels);
    builder.max_pool2d("pool", features, size, {{2, 2}, 2, 0, 1}, pooled, half);
    ids = place(1, kTokens, DType::kI32);
    const Operand copied = place(1, kTokens, DType::kI32);
    builder.copy("ids", ids, copied);
    const Operand words = place(kTokens, kChannels);
    builder.embedding("words", constant(9, kChannels), copied, words);
    const Operand grouped = place(kPixels, kChannels);
    builder.group_norm("group norm", features, constant(1, kChannels), constant(1, kChannels), 4, 1e-5f,
                       Activation::kMish, grouped);
    const Operand smaller = place(kPixels / 4, kChannels);
    builder.resize("resize", grouped, size, smaller, half);
    const Operand turned = place(kChannels, kPixels / 4);
    builder.transpose("transpose", smaller, {1, kPixels / 4, kChannels}, {0, 2, 1}, turned);
    builder.softmax("softmax", turned, turned);
    const Operand shares = place(kPixels / 4, kChannels);
    builder.transpose("transpose back", turned, {1, kChannels, kPixels / 4}, {0, 2, 1}, shares);
    const Operand normed = place(kPixels / 4, kChannels);
    builder.layer_norm("norm", pooled, constant(1, kChannels), constant(1, kChannels), 1e-5f, normed);
    const Operand rms = place(kTokens, kChannels);
    builder.rms_norm("rms", words, constant(1, kChannels), 1e-6f, rms);
    builder.rotary("rotary", normed, constant(kPixels / 4, 4), constant(kPixels / 4, 4), 4, normed);
    const Operand attended = place(kPixels / 4, kChannels);
    builder.attention("attention", normed, rms, words, {}, attended, {4, 4, 0.35f});
    const Operand again = place(kPixels / 4, kChannels);
    builder.attention("attention in steps", attended, rms, words, {}, again, {4, 4, 0.35f},
                      AttentionMethod::kMaterialized);
    // Half of the words are kept at first, the others behind them, and these attend to all.
    const auto words_so_far = engine.key_values({kTokens, 4, kChannels / 4});
    const auto half_of = [&](const Operand& all, int64_t which) {
      Operand half = all;
      half.rows /= 2;
      half.offset += which * half.rows * half.ld * item_bytes(all.dtype);
      return half;
    };
    Operand late_positions;
    for (const int64_t which : {0, 1}) {
      late_positions = positions(kTokens / 2, which * kTokens / 2);
      builder.append("append", words_so_far, half_of(rms, which), half_of(words, which), late_positions);
    }
    const Operand seen = place(kTokens / 2, kChannels);
    builder.cached_attention("cached attention", half_of(rms, 1), words_so_far, late_positions, seen, 4, 0.35f);
    builder.binary("seen", Binary::kAdd, half_of(words, 1), seen, half_of(words, 1));
    builder.attention("attention again", again, rms, words, {}, attended, {4, 4, 0.35f});
    const Operand sum = place(kPixels / 4, kChannels);
    builder.binary("sum", Binary::kAdd, attended, pooled, sum);
    builder.binary("maximum", Binary::kMax, sum, shares, sum);
    builder.binary("scaled", Binary::kMul, sum, constant(1, 1), sum);
    const Operand wide = place(kPixels / 4, 8 * kChannels);
    const Operand deep = place(kPixels / 4, 8 * kChannels);
    EpilogueOperands gelu;
    gelu.activation = Activation::kGelu;
    builder.linear("wide", sum, weights(8 * kChannels, kChannels), wide, gelu);
    if (int8) builder.linear("int8 wide", wide, int8_weights(8 * kChannels, {1, 8 * kChannels}), deep, gelu);
    const Operand squashed = place(kPixels / 4, 8 * kChannels);
    builder.pointwise("tanh", int8 ? deep : wide, Activation::kTanh, {}, {}, squashed);
    result = place(1, 8 * kChannels);
    builder.mean_rows("mean", squashed, result);
    program = builder.build();
    fill(given);
    engine.prepare(*program);
  }

  std::vector<float> run() {
    engine.run(*program);
    std::vector<float> values(8 * kChannels);
    std::memcpy(values.data(), arena->data() + result.offset, values.size() * sizeof(float));
    return values;
  }

  void set_id(int64_t position, int32_t id) {
    reinterpret_cast<int32_t*>(arena->data() + ids.offset)[position] = id;
  }

  Engine engine;
  std::shared_ptr<Arena> arena;
  std::shared_ptr<const Program> program;
  Operand ids;
  Operand result;

 private:
  Operand place(int64_t rows, int64_t cols, DType dtype = DType::kF32) {
    const Operand operand{nullptr, used_, rows, cols, cols, dtype};
    used_ += ceil_div(rows * cols * item_bytes(dtype), int64_t{64}) * 64;
    return operand;
  }
  Operand constant(int64_t rows, int64_t cols) {
    const std::vector<float> values = random_floats(rows * cols, ++seed_);
    return Operand{Constant::copy(values.data(), rows * cols, DType::kF32), 0, rows, cols, cols, DType::kF32};
  }
  static Operand positions(int64_t count, int64_t first) {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<int32_t>(first + i));
    return Operand{Constant::copy(values.data(), count, DType::kI32), 0, 1, count, count, DType::kI32};
  }
  // Each pixel of a row the mean of two neighbours.
  static Operand beside() {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < kWidth; ++i) values.push_back(static_cast<int32_t>(std::min(i, kWidth - 2)));
    return Operand{Constant::copy(values.data(), kWidth, DType::kI32), 0, 1, kWidth, kWidth, DType::kI32};
  }
  static Operand halves() {
    const std::vector<int32_t> values(2 * kWidth, 1 << (ResampleArgs::kBits - 1));
    return Operand{Constant::copy(values.data(), 2 * kWidth, DType::kI32), 0, kWidth, 2, 2, DType::kI32};
  }
  std::shared_ptr<const PackedWeights> weights(int64_t n, int64_t k, const WinogradForm& winograd = {}) {
    return engine.pack(random_floats(n * k, ++seed_).data(), n, k, WeightForm{winograd});
  }
  std::shared_ptr<const Int8Weights> int8_weights(int64_t n, Int8Runs runs) {
    return engine.pack_int8(random_floats(n * runs.runs * runs.run, ++seed_).data(), n, runs);
  }
  void fill(const Operand& image) {
    std::mt19937 random(5);
    for (int64_t i = 0; i < kPixels * 3; ++i) arena->data()[image.offset + i] = static_cast<std::byte>(random() % 256);
    for (int64_t i = 0; i < kTokens; ++i) set_id(i, static_cast<int32_t>(random() % 9));
  }

  int64_t used_ = 0;
  unsigned seed_ = 0;
};

EngineOptions options(int threads, const std::string& isa, int64_t spin_us = 100) {
  EngineOptions options;
  options.threads = threads;
  options.isa = isa;
  options.spin_us = spin_us;
  return options;
}

}  // namespace

TEST(results_do_not_depend_on_threads_or_runs) {
  for (const std::string& isa : available_isas()) {
    const check::Context context(isa);
    for (const bool int8 : {false, true}) {
      Network alone(options(1, isa), int8);
      const std::vector<float> expected = alone.run();
      CHECK(expected != std::vector<float>(expected.size(), expected.front()));
      for (const int threads : {1, 2, 3, 5}) {
        Network network(options(threads, isa), int8);
        for (int round = 0; round < 5; ++round) CHECK(network.run() == expected);
      }
    }
  }
}

TEST(how_the_work_is_divided_does_not_change_a_bit) {
  for (const std::string& isa : available_isas()) {
    const std::vector<float> expected = Network(options(2, isa)).run();
    for (const Schedule schedule : {Schedule::kStatic, Schedule::kDynamic}) {
      for (const int64_t block_rows : {int64_t{1}, int64_t{7}, int64_t{64}, int64_t{100000}}) {
        for (const int64_t cutoff : {int64_t{0}, int64_t{5000}, int64_t{1} << 30}) {
          EngineOptions other = options(3, isa);
          other.schedule = schedule;
          other.block_rows = block_rows;
          other.parallel_cutoff = cutoff;
          const check::Context context(isa + ", blocks of " + std::to_string(block_rows) + ", cutoff " +
                                       std::to_string(cutoff));
          Network network(other);
          CHECK(network.run() == expected);
        }
      }
    }
  }
}

TEST(isas_agree) {
  const std::vector<float> expected = Network(options(2, "portable")).run();
  for (const std::string& isa : available_isas()) {
    const check::Context context(isa);
    const std::vector<float> got = Network(options(2, isa)).run();
    for (std::size_t i = 0; i < got.size(); ++i) CHECK_CLOSE(got[i], expected[i], 1e-5);
  }
}

TEST(runs_allocate_nothing) {
  if (!counts_allocations()) return;
  const int64_t at_start = allocations();
  const std::vector<int> some(3);
  CHECK(allocations() > at_start);
  for (const int threads : {1, 3}) {
    Network network(options(threads, "", 0), true);
    network.engine.run(*network.program);
    std::vector<int64_t> op_ns(network.program->ops.size());
    const int64_t before = allocations();
    for (int round = 0; round < 20; ++round) network.engine.run(*network.program);
    network.engine.run(*network.program, op_ns.data());
    CHECK(allocations() == before);
  }
}

TEST(a_profile_has_a_time_for_each_operation) {
  Network network(options(2, ""));
  std::vector<int64_t> op_ns(network.program->ops.size(), -1);
  network.engine.run(*network.program, op_ns.data());
  for (const int64_t ns : op_ns) CHECK(ns >= 0);
}

TEST(an_index_outside_its_table_is_an_error) {
  Network network(options(2, ""));
  for (const int32_t id : {-1, 9, INT32_MIN, INT32_MAX}) {
    network.set_id(3, id);
    std::string message;
    try {
      network.run();
    } catch (const RunError& error) {
      message = error.what();
    }
    CHECK(message == "op 'words': index " + std::to_string(id) + " at position 3 is outside the table of 9 rows");
  }
  network.set_id(3, 8);
  network.run();
}

TEST(positions_outside_a_state_are_an_error) {
  Engine engine(options(1, ""));
  const auto arena = std::make_shared<Arena>(4096);
  const auto state = engine.key_values({8, 1, 4});
  const Operand rows{nullptr, 0, 2, 4, 4, DType::kF32}, positions{nullptr, 1024, 1, 2, 2, DType::kI32},
      y{nullptr, 2048, 2, 4, 4, DType::kF32};
  const auto refusal = [&](bool append, int32_t first, int32_t second) {
    ProgramBuilder builder(engine.kernels(), engine.int8_kernels(), engine.sharing(), arena);
    if (append) builder.append("op", state, rows, rows, positions);
    if (!append) builder.cached_attention("op", rows, state, positions, y, 1, 1.0f);
    const auto program = builder.build();
    engine.prepare(*program);
    auto* values = reinterpret_cast<int32_t*>(arena->data() + positions.offset);
    values[0] = first, values[1] = second;
    try {
      engine.run(*program);
    } catch (const RunError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const bool append : {true, false}) {
    CHECK(refusal(append, 0, 7).empty());
    CHECK(refusal(append, 0, 8) == "op 'op': position 8 of row 1 is outside the state of 8 rows");
    CHECK(refusal(append, -1, 8) == "op 'op': position -1 of row 0 is outside the state of 8 rows");
  }
  CHECK(refusal(true, 5, 5) == "op 'op': position 5 of row 1 follows 5, expected a larger one");
}

TEST(a_run_can_be_cancelled_from_another_thread) {
  Network network(options(2, ""));
  const std::vector<float> expected = network.run();
  std::atomic<bool> running{false};
  bool cancelled = false;
  std::thread query([&] {
    try {
      for (;;) {
        network.engine.run(*network.program);
        running.store(true);
      }
    } catch (const Cancelled&) {
      cancelled = true;
    }
  });
  while (!running.load()) std::this_thread::yield();
  network.engine.cancel();
  query.join();
  CHECK(cancelled);
  bool still = false;
  try {
    network.run();
  } catch (const Cancelled&) {
    still = true;
  }
  CHECK(still);
  network.engine.resume();
  CHECK(network.run() == expected);
}

TEST(engines_in_one_process_share_nothing) {
  const std::vector<float> expected = Network(options(1, "")).run();
  const auto work = [&expected] {
    Network network(options(2, ""));
    for (int round = 0; round < 30; ++round) {
      if (network.run() != expected) return false;
    }
    return true;
  };
  bool first = false;
  bool second = false;
  std::thread one([&] { first = work(); });
  std::thread two([&] { second = work(); });
  one.join();
  two.join();
  CHECK(first && second);
}

TEST(callers_of_one_engine_take_turns) {
  Network network(options(2, ""));
  const std::vector<float> expected = network.run();
  const auto work = [&network] {
    for (int round = 0; round < 30; ++round) network.engine.run(*network.program);
  };
  std::thread one(work);
  std::thread two(work);
  one.join();
  two.join();
  CHECK(network.run() == expected);
}

TEST(the_read_bandwidth_is_positive) {
  Engine engine(options(2, ""));
  CHECK(engine.read_bandwidth(1 << 20, 3) > 1e6);
  bool refused = false;
  try {
    engine.read_bandwidth(0, 1);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}

CHECK_MAIN()
