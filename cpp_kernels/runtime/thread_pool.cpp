#include "runtime/thread_pool.hpp"

#include <pthread.h>

#include <chrono>
#include <stdexcept>
#include <string>

#include "runtime/affinity.hpp"

namespace vla {
namespace {

constexpr uint64_t kChunkMask = 0xffffffffu;
constexpr int kMaxThreads = 1024;

thread_local bool inside_team = false;

// Counts how often this process is a fork of a fork.
std::atomic<unsigned> fork_generation{0};

unsigned current_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1); });
  static_cast<void>(registered);
  return fork_generation.load(std::memory_order_relaxed);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Polls `ready` for up to `budget_ns`; whether it came true.
template <typename Ready>
bool spin(int64_t budget_ns, Ready ready) {
  constexpr int kPollsPerClockRead = 32;
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::nanoseconds(budget_ns);
  do {
    for (int i = 0; i < kPollsPerClockRead; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return false;
}

int checked_threads(const PoolOptions& options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    throw std::invalid_argument("threads: got " + std::to_string(options.threads) + ", expected 1 to " +
                                std::to_string(kMaxThreads));
  }
  if (options.spin_us < 0) {
    throw std::invalid_argument("spin_us: got " + std::to_string(options.spin_us) + ", expected 0 or more");
  }
  return options.threads;
}

}  // namespace

ThreadPool::ThreadPool(const PoolOptions& options)
    : threads_(checked_threads(options)),
      spin_ns_(options.spin_us * 1000),
      fork_generation_(current_generation()),
      dormitory_(std::make_unique<Dormitory>()) {
  if (!options.affinity.empty()) {
    // Tried here, where a failure can be reported, before the workers do the same.
    std::exception_ptr failure;
    std::thread([&] {
      try {
        set_affinity(options.affinity);
      } catch (...) {
        failure = std::current_exception();
      }
    }).join();
    if (failure) std::rethrow_exception(failure);
  }
  dormitory_->workers.reserve(static_cast<std::size_t>(threads_ - 1));
  for (int thread = 1; thread < threads_; ++thread) {
    dormitory_->workers.emplace_back([this, thread, options] { work(thread, options); });
  }
}

ThreadPool::~ThreadPool() {
  if (fork_generation_ != current_generation()) {
    static_cast<void>(dormitory_.release());  // stays with the parent
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(dormitory_->mutex);
    stop_.store(true);
  }
  dormitory_->job_posted.notify_all();
  for (std::thread& worker : dormitory_->workers) worker.join();
}

void ThreadPool::run_job(int64_t chunks, Call call, void* context) {
  if (chunks <= 0) return;
  const bool alone = threads_ == 1 || chunks == 1 || fork_generation_ != current_generation();
  if (alone || inside_team) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) call(context, chunk, 0);
    return;
  }
  if (chunks > static_cast<int64_t>(kChunkMask)) throw std::invalid_argument("thread pool: too many chunks");
  inside_team = true;
  publish(chunks, call, context);
  while (take_chunk(0)) {
  }
  wait_for_end(chunks);
  inside_team = false;
}

void ThreadPool::publish(int64_t chunks, Call call, void* context) {
  job_ = Job{call, context, chunks};
  done_.store(0, std::memory_order_relaxed);
  const uint64_t number = (ticket_.load(std::memory_order_relaxed) & ~kChunkMask) + kChunkMask + 1;
  ticket_.store(number | static_cast<uint64_t>(chunks));
  // Either this sees a worker that is about to sleep, or that worker, which counts itself first and looks at the
  // ticket afterwards, sees the job: both accesses are sequentially consistent.
  if (sleepers_.load() > 0) {
    { const std::lock_guard<std::mutex> lock(dormitory_->mutex); }
    dormitory_->job_posted.notify_all();
  }
}

bool ThreadPool::take_chunk(int thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if ((ticket & kChunkMask) == 0) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
  const Job job = job_;
  job.call(job.context, job.chunks - static_cast<int64_t>(ticket & kChunkMask), thread);
  // After this the job may be gone: only members of the pool may be touched. The same pairing as in
  // publish() keeps the caller from sleeping through the last chunk.
  if (done_.fetch_add(1) + 1 == job.chunks && caller_sleeps_.load()) {
    { const std::lock_guard<std::mutex> lock(dormitory_->mutex); }
    dormitory_->job_ended.notify_one();
  }
  return true;
}

void ThreadPool::wait_for_end(int64_t chunks) {
  const auto ended = [this, chunks] { return done_.load() == chunks; };
  if (ended() || spin(spin_ns_, ended)) return;
  std::unique_lock<std::mutex> lock(dormitory_->mutex);
  caller_sleeps_.store(true);
  dormitory_->job_ended.wait(lock, ended);
  caller_sleeps_.store(false);
}

// Whether there may be work; false when the pool shuts down.
bool ThreadPool::wait_for_job() {
  const auto posted = [this] { return (ticket_.load() & kChunkMask) != 0 || stop_.load(); };
  if (!spin(spin_ns_, posted)) {
    std::unique_lock<std::mutex> lock(dormitory_->mutex);
    sleepers_.fetch_add(1);
    dormitory_->job_posted.wait(lock, posted);
    sleepers_.fetch_sub(1);
  }
  return !stop_.load();
}

void ThreadPool::work(int thread, const PoolOptions& options) {
  inside_team = true;
  if (!options.affinity.empty()) set_affinity(options.affinity);
  while (wait_for_job()) {
    while (take_chunk(thread)) {
    }
  }
}

}  // namespace vla
