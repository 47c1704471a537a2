// Members that share out the chunks of one job at a time. A crew owns no threads: whoever calls run() is member 0,
// and each thread that calls serve() another one.
//
// The chunks are divided among the members beforehand, neighbouring ones together, so that a member finds in its
// caches what it computed before. With the dynamic schedule a member that is done takes over chunks of the others,
// from their far ends; nobody waits for a member that holds no chunk, so one that the system has not scheduled costs
// nothing. With the static one every member does its own part.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/partition.hpp"
#include "runtime/runner.hpp"

namespace vla {

class Crew final : public Runner {
 public:
  // A member without work polls for up to spin_us before it sleeps.
  Crew(int members, Schedule schedule, int64_t spin_us);

  int members() const { return members_; }
  Schedule schedule() const { return schedule_; }

  // The caller of run() leads as member 0. With the static schedule every other member must be serving.
  void run_job(int64_t chunks, Call call, void* context) override;
  // Does the share of `member` in every job, until the crew is dismissed.
  void serve(int member);
  // Ends serve(), until the crew is opened again while nobody is serving.
  void dismiss();
  void reopen() { dismissed_.store(false); }
  // In a forked child, before the crew is destroyed: leaves alone what its members sleep on.
  void abandon() { static_cast<void>(beds_.release()); }

 private:
  struct Job {
    Call call = nullptr;
    void* context = nullptr;
    int64_t chunks = 0;
  };

  // The chunks of a member that nobody has taken: the first in the upper half, the one after the last in the lower.
  // Who moves a bound owns the chunk it passed, and until that chunk is done the job cannot change.
  struct alignas(64) Member {
    std::atomic<uint64_t> left{0};
    std::atomic<int> cpu{-1};  // where it works; -1 while it waits
  };

  void publish(const Job& job);
  void work(int member);
  bool take_first(int member);
  bool take_last(int victim, int member);
  void perform(int64_t chunk, int member);
  void wait_for_end();
  bool wait_for_job(int member, uint64_t seen);
  template <typename Ready>
  bool spin(Ready ready) const;
  bool in_the_way() const;

  const int members_;
  const Schedule schedule_;
  const int64_t spin_ns_;
  std::unique_ptr<Member[]> member_;
  alignas(64) std::atomic<uint64_t> posted_{0};  // jobs so far
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> leader_sleeps_{false};
  std::atomic<bool> dismissed_{false};
  Job job_;

  // On the heap, because even destroying a condition variable waits for its sleepers, which a forked child has not.
  struct Beds {
    std::mutex mutex;
    std::condition_variable job_posted;
    std::condition_variable job_ended;
  };
  std::unique_ptr<Beds> beds_;
};

}  // namespace vla
