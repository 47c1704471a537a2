// A persistent team of threads that shares out the chunks of one job at a time.
//
// The caller is a member of the team. In a forked child, where no workers exist, it does all of the work.
#pragma once

#include <cstdint>
#include <thread>
#include <type_traits>
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

class ThreadPool {
 public:
  // Throws std::invalid_argument for fewer than one thread or an affinity that cannot be had.
  explicit ThreadPool(const PoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return crew_.members(); }
  Schedule schedule() const { return crew_.schedule(); }

  // Calls body(chunk, thread) once for each chunk in [0, chunks), on the threads of the team, and returns when all are
  // done; thread is in [0, threads()). One caller at a time. A call from inside a body runs its chunks on the spot,
  // with thread 0 reserved for the outermost caller, so bodies that index by thread must not nest. The body must not
  // throw.
  template <typename Body>
  void run(int64_t chunks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    static_assert(std::is_nothrow_invocable_v<Plain&, int64_t, int>, "declare the body noexcept");
    run_job(chunks, [](void* context, int64_t chunk, int thread) noexcept {
      (*static_cast<Plain*>(context))(chunk, thread);
    }, const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  void run_job(int64_t chunks, Crew::Call call, void* context);

  unsigned fork_generation_ = 0;
  Crew crew_;
  std::unique_ptr<std::vector<std::thread>> workers_;  // stays behind in a forked child, which has no such threads
};

}  // namespace vla
