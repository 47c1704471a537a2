#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>

#include "check.hpp"
#include "runtime/affinity.hpp"
#include "runtime/thread_pool.hpp"

using namespace vla;

namespace {

PoolOptions options(int threads, int64_t spin_us, Schedule schedule = Schedule::kDynamic) {
  PoolOptions options;
  options.threads = threads;
  options.spin_us = spin_us;
  options.schedule = schedule;
  return options;
}

// Runs one job and checks that each chunk was done once, by a thread of the team.
void check_job(ThreadPool& pool, int64_t chunks) {
  std::vector<std::atomic<int>> times(static_cast<std::size_t>(chunks));
  std::atomic<bool> known_threads{true};
  pool.run(chunks, [&](int64_t chunk, int thread) noexcept {
    times[static_cast<std::size_t>(chunk)].fetch_add(1, std::memory_order_relaxed);
    if (thread < 0 || thread >= pool.threads()) known_threads.store(false);
  });
  bool once = true;
  for (const auto& count : times) once = once && count.load(std::memory_order_relaxed) == 1;
  CHECK(once);
  CHECK(known_threads.load());
}

void stress(int threads, int64_t spin_us, Schedule schedule, int jobs) {
  const check::Context context(std::to_string(threads) + " threads, spin " + std::to_string(spin_us) + " us, " +
                               (schedule == Schedule::kStatic ? "static" : "dynamic"));
  ThreadPool pool(options(threads, spin_us, schedule));
  CHECK(pool.threads() == threads);
  std::mt19937 random(7);
  for (int job = 0; job < jobs; ++job) {
    check_job(pool, random() % 40);
    // Now and then long enough for the workers to fall asleep, or to be about to.
    if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
  }
}

template <typename Action>
bool throws_invalid_argument(Action action) {
  try {
    action();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

}  // namespace

TEST(every_chunk_is_done_once) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const int64_t spin_us : {0, 50, 1000}) {
      for (const Schedule schedule : {Schedule::kStatic, Schedule::kDynamic}) stress(threads, spin_us, schedule, 1000);
    }
  }
}

TEST(results_are_visible_to_the_caller) {
  ThreadPool pool(options(4, 20));
  std::vector<int64_t> values(1000);  // plain memory: a missing barrier is a data race for ThreadSanitizer
  for (int64_t round = 1; round <= 300; ++round) {
    pool.run(1000, [&](int64_t chunk, int) noexcept { values[static_cast<std::size_t>(chunk)] += chunk * round; });
  }
  bool right = true;
  for (int64_t i = 0; i < 1000; ++i) right = right && values[static_cast<std::size_t>(i)] == i * 300 * 301 / 2;
  CHECK(right);
}

TEST(static_shares_are_fixed) {
  ThreadPool pool(options(3, 20, Schedule::kStatic));
  for (int round = 0; round < 50; ++round) {
    std::vector<int> who(10);
    pool.run(10, [&](int64_t chunk, int thread) noexcept { who[static_cast<std::size_t>(chunk)] = thread; });
    CHECK((who == std::vector<int>{0, 0, 0, 1, 1, 1, 2, 2, 2, 2}));
  }
}

TEST(work_of_a_thread_that_is_held_up_is_taken_over) {
  ThreadPool pool(options(2, 20));
  std::atomic<int> elsewhere{0};
  // The first chunk of one thread waits until all others are done, whoever had them at first.
  pool.run(16, [&](int64_t chunk, int) noexcept {
    if (chunk != 0) {
      elsewhere.fetch_add(1);
      return;
    }
    while (elsewhere.load() < 15) std::this_thread::yield();
  });
  CHECK(elsewhere.load() == 15);
}

TEST(idle_workers_are_woken) {
  ThreadPool pool(options(2, 0));
  for (int round = 0; round < 50; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // Both chunks wait for each other, so this ends only if the sleeping worker takes one.
    std::atomic<int> arrived{0};
    pool.run(2, [&](int64_t, int) noexcept {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
    CHECK(arrived.load() == 2);
  }
}

TEST(a_job_inside_a_job_runs_on_the_spot) {
  ThreadPool pool(options(3, 50));
  ThreadPool other(options(3, 50));
  std::atomic<int> inner{0};
  std::atomic<bool> same_thread{true};
  const auto nested = [&](ThreadPool& team) {
    const auto caller = std::this_thread::get_id();
    team.run(5, [&](int64_t, int) noexcept {
      inner.fetch_add(1);
      if (std::this_thread::get_id() != caller) same_thread.store(false);
    });
  };
  pool.run(8, [&](int64_t, int) noexcept {
    nested(pool);
    nested(other);
  });
  CHECK(inner.load() == 80);
  CHECK(same_thread.load());
}

TEST(teams_come_and_go) {
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(options(1 + round % 4, round % 3 * 10));
    if (round % 2 == 0) check_job(pool, 9);
  }
}

TEST(two_teams_work_side_by_side) {
  const auto work = [] {
    ThreadPool pool(options(2, 20));
    for (int job = 0; job < 500; ++job) check_job(pool, job % 12);
  };
  std::thread first(work);
  std::thread second(work);
  first.join();
  second.join();
}

TEST(teams_on_cpus_of_their_own_work_side_by_side) {
  const std::vector<int> cpus = current_affinity();
  if (cpus.size() < 2) return;
  std::atomic<int> elsewhere{0};
  const auto work = [&](int cpu) {
    const AffinityScope scope({cpu});  // as an engine does for its caller
    PoolOptions pinned = options(2, 20);
    pinned.affinity = {cpu};
    ThreadPool pool(pinned);
    for (int job = 0; job < 300; ++job) {
      pool.run(8, [&](int64_t, int) noexcept { elsewhere.fetch_add(sched_getcpu() != cpu); });
      check_job(pool, job % 12);
    }
  };
  std::thread first(work, cpus.front());
  std::thread second(work, cpus.back());
  first.join();
  second.join();
  CHECK(elsewhere.load() == 0);
  CHECK(current_affinity() == cpus);
}

TEST(bad_options_are_refused) {
  CHECK(throws_invalid_argument([] { ThreadPool pool(options(0, 0)); }));
  CHECK(throws_invalid_argument([] { ThreadPool pool(options(-3, 0)); }));
  CHECK(throws_invalid_argument([] { ThreadPool pool(options(100000, 0)); }));
  CHECK(throws_invalid_argument([] { ThreadPool pool(options(2, -1)); }));
  for (const int cpu : {-1, 1000, 100000}) {
    PoolOptions bad = options(2, 0);
    bad.affinity = {cpu};
    CHECK(throws_invalid_argument([&] { ThreadPool pool(bad); }));
  }
}

TEST(a_cpu_that_cannot_be_had_is_named_beside_those_that_can) {
  const std::vector<int> before = current_affinity();
  for (const int cpu : {1000, 100000}) {
    for (const std::vector<int>& cpus : {std::vector<int>{cpu}, std::vector<int>{before.back(), cpu}}) {
      PoolOptions bad = options(2, 0);
      bad.affinity = cpus;
      std::string reason;
      try {
        ThreadPool pool(bad);
      } catch (const std::invalid_argument& error) {
        reason = error.what();
      }
      CHECK(reason.find("affinity: CPU " + std::to_string(cpu) + " ") == 0);
      const std::size_t expected = reason.find(", expected some of ");
      CHECK(expected != std::string::npos);
      CHECK(reason.find(std::to_string(before.back()), expected) != std::string::npos);
    }
  }
  CHECK(current_affinity() == before);
}

TEST(workers_stay_on_their_cpus) {
  const std::vector<int> before = current_affinity();
  PoolOptions pinned = options(2, 0);
  pinned.affinity = {before.back()};
  ThreadPool pool(pinned);
  std::atomic<int> elsewhere{0};
  std::atomic<int> arrived{0};
  pool.run(2, [&](int64_t, int thread) noexcept {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
    if (thread != 0 && current_affinity() != pinned.affinity) elsewhere.fetch_add(1);
  });
  CHECK(elsewhere.load() == 0);
  CHECK(current_affinity() == before);
  {
    const AffinityScope scope(pinned.affinity);
    CHECK(current_affinity() == pinned.affinity);
  }
  CHECK(current_affinity() == before);
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VLA_NO_FORK
#endif
#elif defined(__SANITIZE_THREAD__)
#define VLA_NO_FORK
#endif

#ifndef VLA_NO_FORK  // ThreadSanitizer cannot follow a fork of a process with threads
TEST(a_forked_child_works_alone) {
  ThreadPool pool(options(3, 0));
  check_job(pool, 12);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that the workers are asleep
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> done{0};
    {
      ThreadPool own(options(2, 0));
      own.run(10, [&](int64_t, int) noexcept { done.fetch_add(1); });
    }
    pool.run(10, [&](int64_t, int) noexcept { done.fetch_add(1); });
    pool.~ThreadPool();  // as at the end of a program; the memory is the copy of the child
    _exit(done.load() == 20 ? 0 : 1);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  check_job(pool, 12);
}
#endif

CHECK_MAIN()
