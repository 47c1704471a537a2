// Runs the branches of a section of a program at the same time, each on some of the threads of a team.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <vector>

#include "runtime/program.hpp"
#include "runtime/thread_pool.hpp"

namespace vla {

class Branches {
 public:
  // As many crews of `threads_per_branch` as a team of `threads` makes; none for 0 or if it makes only one.
  Branches(int threads, int threads_per_branch, int64_t spin_us) : size_(threads_per_branch) {
    const int crews = size_ > 0 ? threads / size_ : 1;
    for (int crew = 0; crews > 1 && crew < crews; ++crew) {
      crews_.push_back(std::make_unique<Crew>(size_, Schedule::kDynamic, spin_us));
    }
  }

  int crews() const { return static_cast<int>(crews_.size()); }
  int threads_per_crew() const { return size_; }

  // Calls run_op(op, crew's number, runner) for the operations [begin, end), those of one branch in order and by one
  // crew. Rethrows what it throws, when all crews have stopped.
  template <typename RunOp>
  void run(ThreadPool& pool, const std::vector<Op>& ops, Section section, const RunOp& run_op) {
    for (const auto& crew : crews_) crew->reopen();
    std::atomic<int> taken{0};
    std::atomic<bool> failed{false};
    std::exception_ptr failure;
    pool.run(crews() * size_, [&](int64_t chunk, int) noexcept {
      const int number = static_cast<int>(chunk) / size_, member = static_cast<int>(chunk) % size_;
      Crew& crew = *crews_[static_cast<std::size_t>(number)];
      if (member > 0) return crew.serve(member);
      try {
        for (int branch; !failed.load() && (branch = taken.fetch_add(1)) < section.branches;) {
          for (std::size_t op = section.begin; op < section.end && !failed.load(); ++op) {
            if (ops[op].branch == branch) run_op(op, number, crew);
          }
        }
      } catch (...) {
        if (!failed.exchange(true)) failure = std::current_exception();
      }
      crew.dismiss();
    });
    if (failure) std::rethrow_exception(failure);
  }

 private:
  int size_;
  std::vector<std::unique_ptr<Crew>> crews_;
};

}  // namespace vla
