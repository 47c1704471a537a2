// Runs one operation of a program on a team of threads.
#pragma once

#include "runtime/program.hpp"
#include "runtime/runner.hpp"

namespace vla {

struct Workspace {
  float* shared = nullptr;
  float* per_thread = nullptr;
  int64_t thread_stride = 0;

  float* of(int thread) const { return per_thread + thread * thread_stride; }
};

struct Team {
  const KernelTable& kernels;
  const Int8Table& int8;
  Runner& runner;
  Workspace workspace;
};

// Throws RunError for an embedding index outside its table.
void execute(const Op& op, const Team& team);

}  // namespace vla
