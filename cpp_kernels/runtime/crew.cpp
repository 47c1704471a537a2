#include "runtime/crew.hpp"

#include <sched.h>

#include <chrono>
#include <stdexcept>
#include <string>

namespace vla {
namespace {

constexpr int kHalf = 32;
constexpr uint64_t kLowerHalf = 0xffffffffu;
constexpr int64_t kMostChunks = int64_t{1} << 31;

uint64_t pack(Range range) {
  return static_cast<uint64_t>(range.begin) << kHalf | static_cast<uint64_t>(range.end);
}

Range unpack(uint64_t left) {
  return Range{static_cast<int64_t>(left >> kHalf), static_cast<int64_t>(left & kLowerHalf)};
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace

Crew::Crew(int members, Schedule schedule, int64_t spin_us)
    : members_(members),
      schedule_(schedule),
      spin_ns_(spin_us * 1000),
      member_(std::make_unique<Member[]>(static_cast<std::size_t>(members))),
      beds_(std::make_unique<Beds>()) {
  if (spin_us < 0) {
    throw std::invalid_argument("spin_us: got " + std::to_string(spin_us) + ", expected 0 or more");
  }
}

void Crew::run_job(int64_t chunks, Call call, void* context) {
  if (members_ == 1 || chunks <= 1) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) call(context, chunk, 0);
    return;
  }
  if (chunks > kMostChunks) throw std::invalid_argument("thread pool: too many chunks");
  member_[0].cpu.store(sched_getcpu(), std::memory_order_relaxed);
  publish(Job{call, context, chunks});
  work(0);
  wait_for_end();
}

void Crew::publish(const Job& job) {
  job_ = job;
  done_.store(0, std::memory_order_relaxed);
  for (int member = 0; member < members_; ++member) {
    member_[member].left.store(pack(slice_of(job.chunks, members_, member)), std::memory_order_release);
  }
  posted_.fetch_add(1);
  // Either this sees a member that is about to sleep, or that member, which counts itself first and looks at the number
  // of jobs afterwards, sees the job: both accesses are sequentially consistent.
  if (sleepers_.load() > 0) {
    { const std::lock_guard<std::mutex> lock(beds_->mutex); }
    beds_->job_posted.notify_all();
  }
}

void Crew::work(int member) {
  while (take_first(member)) {
  }
  if (schedule_ == Schedule::kStatic) return;
  for (int step = 1; step < members_; ++step) {
    while (take_last((member + step) % members_, member)) {
    }
  }
}

bool Crew::take_first(int member) {
  std::atomic<uint64_t>& left = member_[member].left;
  uint64_t seen = left.load(std::memory_order_acquire);
  Range range;
  do {
    range = unpack(seen);
    if (range.begin >= range.end) return false;
  } while (!left.compare_exchange_weak(seen, pack({range.begin + 1, range.end}), std::memory_order_acq_rel,
                                       std::memory_order_acquire));
  perform(range.begin, member);
  return true;
}

bool Crew::take_last(int victim, int member) {
  std::atomic<uint64_t>& left = member_[victim].left;
  uint64_t seen = left.load(std::memory_order_acquire);
  Range range;
  do {
    range = unpack(seen);
    if (range.begin >= range.end) return false;
  } while (!left.compare_exchange_weak(seen, pack({range.begin, range.end - 1}), std::memory_order_acq_rel,
                                       std::memory_order_acquire));
  perform(range.end - 1, member);
  return true;
}

void Crew::perform(int64_t chunk, int member) {
  member_[member].cpu.store(sched_getcpu(), std::memory_order_relaxed);
  const Job job = job_;
  job.call(job.context, chunk, member);
  // After this the job may be gone: only members of the crew may be touched. The same pairing as in publish() keeps the
  // leader from sleeping through the last chunk.
  if (done_.fetch_add(1) + 1 == job.chunks && leader_sleeps_.load()) {
    { const std::lock_guard<std::mutex> lock(beds_->mutex); }
    beds_->job_ended.notify_one();
  }
}

// Polls `ready` for as long as polling is allowed; whether it came true.
template <typename Ready>
bool Crew::spin(Ready ready) const {
  constexpr int kPollsPerClockRead = 32;
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::nanoseconds(spin_ns_);
  do {
    for (int i = 0; i < kPollsPerClockRead; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() < end && !in_the_way());
  return false;
}

// Whether the calling thread, which waits, is on the CPU of a member that works and so keeps it from running.
bool Crew::in_the_way() const {
  const int cpu = sched_getcpu();
  for (int member = 0; member < members_; ++member) {
    if (member_[member].cpu.load(std::memory_order_relaxed) == cpu) return true;
  }
  return false;
}

void Crew::wait_for_end() {
  const auto ended = [this] { return done_.load() == job_.chunks; };
  if (ended()) return;
  member_[0].cpu.store(-1, std::memory_order_relaxed);
  if (!spin(ended)) {
    std::unique_lock<std::mutex> lock(beds_->mutex);
    leader_sleeps_.store(true);
    beds_->job_ended.wait(lock, ended);
    leader_sleeps_.store(false);
  }
  member_[0].cpu.store(sched_getcpu(), std::memory_order_relaxed);
}

// False when the crew is dismissed.
bool Crew::wait_for_job(int member, uint64_t seen) {
  const auto posted = [this, seen] { return posted_.load() != seen || dismissed_.load(); };
  member_[member].cpu.store(-1, std::memory_order_relaxed);
  if (!spin(posted)) {
    std::unique_lock<std::mutex> lock(beds_->mutex);
    sleepers_.fetch_add(1);
    beds_->job_posted.wait(lock, posted);
    sleepers_.fetch_sub(1);
  }
  return !dismissed_.load();
}

void Crew::serve(int member) {
  for (uint64_t seen = 0; wait_for_job(member, seen);) {
    seen = posted_.load();
    work(member);
  }
}

void Crew::dismiss() {
  {
    const std::lock_guard<std::mutex> lock(beds_->mutex);
    dismissed_.store(true);
  }
  beds_->job_posted.notify_all();
}

}  // namespace vla
