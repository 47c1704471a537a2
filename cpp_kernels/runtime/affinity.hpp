// The CPUs that a thread may run on.
#pragma once

#include <vector>

namespace vla {

// CPUs that the calling thread may run on, ascending.
std::vector<int> current_affinity();

// Let the calling thread run on these CPUs only. Throws std::invalid_argument that names a CPU which does
// not exist or which this process may not use.
void set_affinity(const std::vector<int>& cpus);

// Keeps the calling thread on `cpus` for as long as it lives, then lets it go back to where it was.
// An empty set changes nothing.
class AffinityScope {
 public:
  explicit AffinityScope(const std::vector<int>& cpus);
  ~AffinityScope();
  AffinityScope(const AffinityScope&) = delete;
  AffinityScope& operator=(const AffinityScope&) = delete;

 private:
  struct Mask {
    unsigned char bytes[128];
  };
  Mask before_;
  bool changed_ = false;
};

}  // namespace vla
