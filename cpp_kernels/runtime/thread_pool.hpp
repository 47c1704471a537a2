// A persistent team of threads that shares out the chunks of one job at a time.
//
// The caller is a member of the team. In a forked child, where no workers exist, it does all of the work.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/crew.hpp"

namespace vla {

struct PoolOptions {
  int threads = 1;  // including the caller
  // CPUs the workers may run on; empty for those of the creating thread.
  std::vector<int> affinity;
  // How long an idle worker polls for the next job before it sleeps: longer than the serial stretches of a
  // program, shorter than the pause between two queries.
  int64_t spin_us = 200;
  Schedule schedule = Schedule::kDynamic;
};

// A call of run() from inside a body runs its chunks on the spot, with thread 0 reserved for the outermost caller, so
// bodies that index by thread must not nest.
class ThreadPool final : public Runner {
 public:
  // Throws std::invalid_argument for fewer than one thread or an affinity that cannot be had.
  explicit ThreadPool(const PoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return crew_.members(); }
  Schedule schedule() const { return crew_.schedule(); }

 private:
  void run_job(int64_t chunks, Call call, void* context) override;

  unsigned fork_generation_ = 0;
  Crew crew_;
  std::unique_ptr<std::vector<std::thread>> workers_;  // stays behind in a forked child, which has no such threads
};

}  // namespace vla
