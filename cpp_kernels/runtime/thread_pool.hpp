// A persistent team of threads that shares out the chunks of one job at a time.
//
// The caller is a member of the team: it works on chunks too, and it never waits for a worker that holds
// none. So a worker that the system has not scheduled costs nothing, and in a forked child, where no workers
// exist, jobs still complete.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace vla {

struct PoolOptions {
  int threads = 1;  // including the caller
  // CPUs the workers may run on; empty for those of the creating thread.
  std::vector<int> affinity;
  // How long an idle worker polls for the next job before it sleeps: longer than the serial stretches of a
  // program, shorter than the pause between two queries.
  int64_t spin_us = 200;
};

class ThreadPool {
 public:
  // Throws std::invalid_argument for fewer than one thread or an affinity that cannot be had.
  explicit ThreadPool(const PoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(chunk, thread) once for each chunk in [0, chunks), on any thread of the team in any order, and
  // returns when all are done; thread is in [0, threads()). One caller at a time. A call from inside a body runs
  // its chunks on the spot, with thread 0 reserved for the outermost caller, so bodies that index by
  // thread must not nest. The body must not throw.
  template <typename Body>
  void run(int64_t chunks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    static_assert(std::is_nothrow_invocable_v<Plain&, int64_t, int>, "declare the body noexcept");
    run_job(chunks, [](void* context, int64_t chunk, int thread) noexcept {
      (*static_cast<Plain*>(context))(chunk, thread);
    }, const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* context, int64_t chunk, int thread) noexcept;
  struct Job {
    Call call = nullptr;
    void* context = nullptr;
    int64_t chunks = 0;
  };

  void run_job(int64_t chunks, Call call, void* context);
  void work(int thread, const PoolOptions& options);
  bool take_chunk(int thread);
  bool wait_for_job();
  void wait_for_end(int64_t chunks);
  void publish(int64_t chunks, Call call, void* context);

  int threads_ = 1;
  int64_t spin_ns_ = 0;
  unsigned fork_generation_ = 0;

  // The ticket holds the number of the job in its upper half and the chunks not yet taken in its lower half. Who
  // decrements it owns a chunk, and until that chunk is done the job cannot change.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
  Job job_;

  // Where the members of the team sleep, and the members. On the heap, so that a forked child can leave alone what
  // belongs to threads it does not have: even destroying a condition variable waits for its sleepers.
  struct Dormitory {
    std::mutex mutex;
    std::condition_variable job_posted;
    std::condition_variable job_ended;
    std::vector<std::thread> workers;
  };
  std::unique_ptr<Dormitory> dormitory_;
};

}  // namespace vla
