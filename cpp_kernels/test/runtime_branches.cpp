// Branches of a program that run at the same time.
#include <random>
#include <thread>

#include "check.hpp"
#include "runtime/engine.hpp"
#include "runtime/program_builder.hpp"

using namespace vla;

namespace {

constexpr int kBranches = 3;
constexpr int64_t kRows = 130;
constexpr int64_t kCols = 64;

std::vector<float> random_floats(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 2000) / 1000.0f - 1.0f;
  return values;
}

// Something before, three branches with an attention each, and what joins them. An embedding leads the last branch.
class Network {
 public:
  Network(int threads, int threads_per_branch, Schedule schedule = Schedule::kDynamic)
      : engine(options(threads, threads_per_branch, schedule)), arena_(std::make_shared<Arena>(std::size_t{4} << 20)) {
    ProgramBuilder builder(engine.kernels(), engine.int8_kernels(), engine.sharing(), arena_);
    const Operand x = place(kRows, kCols);
    const std::vector<float> values = random_floats(kRows * kCols, 99);
    std::memcpy(arena_->data() + x.offset, values.data(), values.size() * sizeof(float));
    const Operand before = layer(builder, "before", x);
    ids_ = place(1, kRows, DType::kI32);
    std::vector<Operand> ends;
    for (int branch = 0; branch < kBranches; ++branch) {
      builder.set_branch(branch);
      const std::string name = "branch" + std::to_string(branch);
      Operand y = before;
      if (branch == kBranches - 1) {
        y = place(kRows, kCols);
        builder.embedding("words", constant(5, kCols), ids_, y);
      }
      for (int depth = 0; depth < 3; ++depth) y = layer(builder, name, y);
      const Operand attended = place(kRows, kCols);
      builder.attention(name, y, before, y, {}, attended, {4, 4, 0.3f});
      ends.push_back(attended);
    }
    builder.set_branch(-1);
    result_ = ends.front();
    for (int branch = 1; branch < kBranches; ++branch) {
      const Operand sum = place(kRows, kCols);
      builder.binary("sum", Binary::kAdd, result_, ends[static_cast<std::size_t>(branch)], sum);
      result_ = sum;
    }
    program = builder.build();
    engine.prepare(*program);
  }

  std::vector<float> run() {
    engine.run(*program);
    std::vector<float> values(static_cast<std::size_t>(kRows * kCols));
    std::memcpy(values.data(), arena_->data() + result_.offset, values.size() * sizeof(float));
    return values;
  }
  void set_id(int32_t id) { reinterpret_cast<int32_t*>(arena_->data() + ids_.offset)[7] = id; }

  Engine engine;
  std::shared_ptr<const Program> program;

 private:
  static EngineOptions options(int threads, int threads_per_branch, Schedule schedule) {
    EngineOptions options;
    options.threads = threads;
    options.threads_per_branch = threads_per_branch;
    options.schedule = schedule;
    return options;
  }
  Operand place(int64_t rows, int64_t cols, DType dtype = DType::kF32) {
    const Operand operand{nullptr, used_, rows, cols, cols, dtype};
    used_ += ceil_div(rows * cols * item_bytes(dtype), int64_t{64}) * 64;
    return operand;
  }
  Operand constant(int64_t rows, int64_t cols) {
    const std::vector<float> values = random_floats(rows * cols, ++seed_);
    return Operand{Constant::copy(values.data(), rows * cols, DType::kF32), 0, rows, cols, cols, DType::kF32};
  }
  Operand layer(ProgramBuilder& builder, const std::string& name, const Operand& x) {
    const Operand y = place(kRows, kCols);
    builder.linear(name, x, engine.pack(random_floats(kCols * kCols, ++seed_).data(), kCols, kCols), y, {});
    return y;
  }

  std::shared_ptr<Arena> arena_;
  Operand ids_;
  Operand result_;
  int64_t used_ = 0;
  unsigned seed_ = 0;
};

}  // namespace

TEST(the_builder_finds_the_sections) {
  const Network network(2, 1);
  CHECK(network.program->sections.size() == 1);
  const Section& section = network.program->sections.front();
  CHECK(section.begin == 1 && section.end == 14 && section.branches == kBranches);
  CHECK(network.program->ops[0].branch == -1 && network.program->ops[1].branch == 0);
  CHECK(network.program->ops[13].branch == 2 && network.program->ops[14].branch == -1);
}

TEST(crews_are_made_where_there_are_threads_for_two) {
  CHECK(!Network(1, 1).engine.branching());
  CHECK(!Network(3, 0).engine.branching());
  CHECK(!Network(3, 2).engine.branching());
  CHECK(Network(2, 1).engine.branching());
  CHECK(Network(5, 2).engine.branching());
}

TEST(results_are_those_of_branches_one_after_the_other) {
  const std::vector<float> expected = Network(1, 0).run();
  for (const Schedule schedule : {Schedule::kStatic, Schedule::kDynamic}) {
    for (const int threads : {2, 3, 4, 5}) {
      for (const int per_branch : {1, 2}) {
        const check::Context context(std::to_string(per_branch) + " of " + std::to_string(threads) + " threads");
        Network network(threads, per_branch, schedule);
        for (int round = 0; round < 20; ++round) CHECK(network.run() == expected);
      }
    }
  }
}

TEST(every_operation_has_its_time) {
  Network network(2, 1);
  std::vector<int64_t> times(network.program->ops.size(), -1);
  network.engine.run(*network.program, times.data());
  for (const int64_t time : times) CHECK(time >= 0);
}

TEST(an_error_in_a_branch_ends_the_run) {
  Network network(4, 2);
  const std::vector<float> expected = network.run();
  network.set_id(5);
  std::string message;
  try {
    network.run();
  } catch (const RunError& error) {
    message = error.what();
  }
  CHECK(message == "op 'words': index 5 at position 7 is outside the table of 5 rows");
  network.set_id(0);
  CHECK(network.run() == expected);
}

TEST(a_run_in_branches_can_be_cancelled) {
  Network network(2, 1);
  network.engine.cancel();
  bool cancelled = false;
  try {
    network.run();
  } catch (const Cancelled&) {
    cancelled = true;
  }
  CHECK(cancelled);
}

CHECK_MAIN()
