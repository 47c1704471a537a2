#include "runtime/thread_pool.hpp"

#include <pthread.h>

#include <exception>
#include <stdexcept>
#include <string>

#include "runtime/affinity.hpp"

namespace vla {
namespace {

constexpr int kMaxThreads = 1024;

thread_local bool inside_team = false;

// Counts how often this process is a fork of a fork.
std::atomic<unsigned> fork_generation{0};

unsigned current_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1); });
  static_cast<void>(registered);
  return fork_generation.load(std::memory_order_relaxed);
}

int checked_threads(const PoolOptions& options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    throw std::invalid_argument("threads: got " + std::to_string(options.threads) + ", expected 1 to " +
                                std::to_string(kMaxThreads));
  }
  return options.threads;
}

// Tried on a thread of its own, where a failure can be reported, before the workers do the same.
void try_affinity(const std::vector<int>& cpus) {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      set_affinity(cpus);
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

ThreadPool::ThreadPool(const PoolOptions& options)
    : fork_generation_(current_generation()), crew_(checked_threads(options), options.schedule, options.spin_us),
      workers_(std::make_unique<std::vector<std::thread>>()) {
  if (!options.affinity.empty()) try_affinity(options.affinity);
  workers_->reserve(static_cast<std::size_t>(threads() - 1));
  for (int thread = 1; thread < threads(); ++thread) {
    workers_->emplace_back([this, thread, affinity = options.affinity] {
      inside_team = true;
      if (!affinity.empty()) set_affinity(affinity);
      crew_.serve(thread);
    });
  }
}

ThreadPool::~ThreadPool() {
  if (fork_generation_ != current_generation()) {
    crew_.abandon();
    static_cast<void>(workers_.release());
    return;
  }
  crew_.dismiss();
  for (std::thread& worker : *workers_) worker.join();
}

void ThreadPool::run_job(int64_t chunks, Call call, void* context) {
  if (inside_team || fork_generation_ != current_generation()) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) call(context, chunk, 0);
    return;
  }
  inside_team = true;
  crew_.run_job(chunks, call, context);
  inside_team = false;
}

}  // namespace vla
