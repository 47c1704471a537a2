// Kernels of one instruction set, a team of threads, and scratch memory: what programs run on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "runtime/branches.hpp"
#include "runtime/executor.hpp"
#include "runtime/program.hpp"
#include "runtime/thread_pool.hpp"

namespace vla {

struct EngineOptions {
  int threads = 0;            // 0: one per physical core that this process may use
  std::string isa;            // empty: VLA_SIMD_ISA, or the best available
  std::string int8;           // empty: VLA_SIMD_INT8, or the best available with the vectors of isa
  std::vector<int> affinity;  // CPUs to run on; empty: anywhere
  int64_t spin_us = PoolOptions().spin_us;
  Schedule schedule = PoolOptions().schedule;
  int64_t parallel_cutoff = 1024;  // an operation of fewer output elements is done by one thread
  int64_t block_rows = 0;          // for the kernels, see LinearArgs
  int threads_per_branch = 0;      // 0: all threads on one branch of a program after the other
};

// A run that was stopped by Engine::cancel().
class Cancelled : public std::runtime_error {
 public:
  Cancelled() : std::runtime_error("the run was cancelled") {}
};

// A value that came in at run time is out of range; the message names the operation.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Engine {
 public:
  // Throws std::invalid_argument for options that cannot be had.
  explicit Engine(const EngineOptions& options);

  const KernelTable& kernels() const { return kernels_; }
  const Int8Table& int8_kernels() const { return int8_; }
  int threads() const { return pool_.threads(); }
  const std::vector<int>& affinity() const { return affinity_; }
  // How programs for this engine are cut.
  const Sharing& sharing() const { return sharing_; }
  // Whether branches of programs run at the same time.
  bool branching() const { return branches_.crews() > 1; }

  // Makes room for the scratch memory of `program`, so that running it allocates nothing.
  void prepare(const Program& program);

  // Runs `program`, which must have been prepared. With `op_ns`, which has one element per operation, stores the
  // time that each took, in which branches may overlap. One run at a time: a second caller waits. Throws Cancelled or RunError.
  void run(const Program& program, int64_t* op_ns = nullptr);
  // Nanoseconds that `runs` runs take, one after the other: of a program so short that reading a clock would count.
  int64_t time(const Program& program, int64_t runs);

  // Packs weights on this engine's threads; see PackedWeights.
  std::shared_ptr<const PackedWeights> pack(const float* weights, int64_t n, int64_t k,
                                            const WeightForm& form = {});
  // The same for weights in blocks; see BlockWeights.
  std::shared_ptr<const BlockWeights> pack_blocks(BlockForm form, const std::byte* blocks, int64_t bytes, int64_t n,
                                                  int64_t k);
  // The same for INT8 weights [n][runs][run]; see Int8Weights.
  std::shared_ptr<const Int8Weights> pack_int8(const float* weights, int64_t n, Int8Runs runs,
                                               bool winograd = false);

  // A state in the layout of this engine's kernels; see KeyValues.
  std::shared_ptr<KeyValues> key_values(const KeyValueShape& shape) const {
    return std::make_shared<KeyValues>(kernels_, shape);
  }

  // Bytes per second that the threads read together, over and over, from a buffer of `bytes`: the best of `repeats`.
  // A buffer that fits into a cache tells that cache's bandwidth.
  double read_bandwidth(int64_t bytes, int repeats);

  // From any thread: the run in flight, and every later one until resume(), ends with Cancelled before its next
  // operation.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  void resume() { cancelled_.store(false, std::memory_order_relaxed); }

 private:
  Team team(Runner& runner, int crew);
  void run_op(const Program& program, std::size_t op, const Team& team, int64_t* op_ns);
  void run_ops(const Program& program, int64_t* op_ns);

  const KernelTable& kernels_;
  const Int8Table& int8_;
  std::vector<int> affinity_;
  ThreadPool pool_;
  Sharing sharing_;
  Branches branches_;
  std::mutex mutex_;
  WorkspaceNeed capacity_;
  AlignedBuffer workspace_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace vla
