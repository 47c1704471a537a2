#include "runtime/engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>

#include "runtime/affinity.hpp"
#include "runtime/cpu_features.hpp"
#include "runtime/dispatch.hpp"
#include "runtime/executor.hpp"
#include "runtime/int8_dispatch.hpp"

namespace vla {
namespace {

constexpr int64_t kFloatsPerLine = static_cast<int64_t>(kAlignment / sizeof(float));

int64_t whole_lines(int64_t floats) { return ceil_div(floats, kFloatsPerLine) * kFloatsPerLine; }

PoolOptions pool_options(const EngineOptions& options) {
  PoolOptions pool;
  pool.threads = options.threads;
  pool.affinity = options.affinity;
  pool.spin_us = options.spin_us;
  pool.schedule = options.schedule;
  if (options.threads == 0) {
    pool.threads = options.affinity.empty() ? default_threads() : static_cast<int>(options.affinity.size());
  }
  return pool;
}

int64_t elapsed_ns(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

Engine::Engine(const EngineOptions& options)
    : kernels_(select_kernels(options.isa)),
      int8_(select_int8(options.int8, kernels_.isa)),
      affinity_(options.affinity),
      pool_(pool_options(options)),
      sharing_{pool_.threads(), pool_.schedule(), options.parallel_cutoff, options.block_rows,
               options.threads_per_branch},
      branches_(pool_.threads(), options.threads_per_branch, options.spin_us) {}

void Engine::prepare(const Program& program) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const WorkspaceNeed need{std::max(capacity_.shared, whole_lines(program.workspace.shared)),
                           std::max(capacity_.per_thread, whole_lines(program.workspace.per_thread))};
  if (need.shared == capacity_.shared && need.per_thread == capacity_.per_thread) return;
  const int64_t floats = need.shared * std::max(1, branches_.crews()) + need.per_thread * threads();
  workspace_ = AlignedBuffer(static_cast<std::size_t>(floats) * sizeof(float));
  if (floats > 0) std::memset(workspace_.data(), 0, workspace_.bytes());  // bring the pages in now, not in a run
  capacity_ = need;
}

// The threads of a crew, or of the whole team, with scratch memory of their own.
Team Engine::team(Runner& runner, int crew) {
  auto* floats = reinterpret_cast<float*>(workspace_.data());
  float* per_thread = floats + capacity_.shared * std::max(1, branches_.crews());
  const int64_t first_thread = int64_t{crew} * branches_.threads_per_crew();
  return Team{kernels_, int8_, runner,
              Workspace{floats + crew * capacity_.shared, per_thread + first_thread * capacity_.per_thread,
                        capacity_.per_thread}};
}

void Engine::run_op(const Program& program, std::size_t op, const Team& team, int64_t* op_ns) {
  if (cancelled_.load(std::memory_order_relaxed)) throw Cancelled();
  if (op_ns == nullptr) return execute(program.ops[op], team);
  const auto start = std::chrono::steady_clock::now();
  execute(program.ops[op], team);
  op_ns[op] = elapsed_ns(start);
}

void Engine::run_ops(const Program& program, int64_t* op_ns) {
  const Team everyone = team(pool_, 0);
  auto section = program.sections.begin();
  for (std::size_t op = 0; op < program.ops.size();) {
    if (!branching() || section == program.sections.end() || section->begin != op) {
      run_op(program, op++, everyone, op_ns);
      continue;
    }
    branches_.run(pool_, program.ops, *section, [&](std::size_t branch_op, int crew, Runner& runner) {
      run_op(program, branch_op, team(runner, crew), op_ns);
    });
    op = section++->end;
  }
  if (cancelled_.load(std::memory_order_relaxed)) throw Cancelled();
}

void Engine::run(const Program& program, int64_t* op_ns) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const AffinityScope scope(affinity_);
  run_ops(program, op_ns);
}

int64_t Engine::time(const Program& program, int64_t runs) {
  if (runs < 1) throw std::invalid_argument("time: got " + std::to_string(runs) + " runs, expected 1 or more");
  const std::lock_guard<std::mutex> lock(mutex_);
  const AffinityScope scope(affinity_);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < runs; ++i) run_ops(program, nullptr);
  return elapsed_ns(start);
}

std::shared_ptr<const PackedWeights> Engine::pack(const float* weights, int64_t n, int64_t k,
                                                  const WeightForm& form) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const AffinityScope scope(affinity_);
  return std::make_shared<const PackedWeights>(kernels_, pool_, weights, n, k, form);
}

std::shared_ptr<const BlockWeights> Engine::pack_blocks(BlockForm form, const std::byte* blocks, int64_t bytes,
                                                        int64_t n, int64_t k) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const AffinityScope scope(affinity_);
  return std::make_shared<const BlockWeights>(kernels_, pool_, form, blocks, bytes, n, k);
}

std::shared_ptr<const Int8Weights> Engine::pack_int8(const float* weights, int64_t n, Int8Runs runs,
                                                     bool winograd) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const AffinityScope scope(affinity_);
  return std::make_shared<const Int8Weights>(int8_, pool_, weights, n, runs, winograd);
}

double Engine::read_bandwidth(int64_t bytes, int repeats) {
  if (bytes < 1 || repeats < 1) throw std::invalid_argument("read_bandwidth: expected positive bytes and repeats");
  const std::lock_guard<std::mutex> lock(mutex_);
  const AffinityScope scope(affinity_);
  // Every thread reads a part of its own, and so often that starting and ending it does not count.
  constexpr int64_t kGrain = 128;
  constexpr int64_t kLeastBytes = int64_t{8} << 20;
  const int64_t parts = pool_.threads();
  const int64_t count = ceil_div(bytes, parts * kGrain * int64_t{sizeof(float)}) * kGrain;
  const auto part_bytes = static_cast<std::size_t>(count) * sizeof(float);
  const AlignedBuffer buffer(part_bytes * static_cast<std::size_t>(parts));
  std::memset(buffer.data(), 0, buffer.bytes());
  const int64_t passes = std::max<int64_t>(1, kLeastBytes / static_cast<int64_t>(part_bytes));
  int64_t best = std::numeric_limits<int64_t>::max();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    pool_.run(parts, [&](int64_t part, int) noexcept {
      kernels_.read_all(reinterpret_cast<const float*>(buffer.data()) + part * count, count, passes);
    });
    best = std::min(best, std::max<int64_t>(1, elapsed_ns(start)));
  }
  return static_cast<double>(part_bytes) * static_cast<double>(parts * passes) / (static_cast<double>(best) * 1e-9);
}

}  // namespace vla
