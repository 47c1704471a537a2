// What the processor offers, asked from the processor itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vla {

struct CpuInfo {
  std::string model;
  std::vector<std::string> features;  // of those the kernels care about
  int logical_cpus = 0;               // that this process may run on
  int physical_cores = 0;             // among those
  int64_t l1d_bytes = 0;              // 0 where unknown
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;

  bool has(const std::string& feature) const;
};

// Looked up once per process, except for the CPUs this process may run on.
CpuInfo cpu_info();

// Threads worth starting: one per physical core that this process may use, less where a control group
// limits the processor time.
int default_threads();

}  // namespace vla
