#include "runtime/affinity.hpp"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace vla {
namespace {

cpu_set_t to_mask(const std::vector<int>& cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) {
      throw std::invalid_argument("affinity: CPU " + std::to_string(cpu) + " does not exist");
    }
    CPU_SET(cpu, &mask);
  }
  return mask;
}

}  // namespace

std::vector<int> current_affinity() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

void set_affinity(const std::vector<int>& cpus) {
  const cpu_set_t mask = to_mask(cpus);
  if (sched_setaffinity(0, sizeof(mask), &mask) == 0) {
    // The system drops CPUs that do not exist without a word.
    const std::vector<int> granted = current_affinity();
    for (const int cpu : cpus) {
      bool found = false;
      for (const int other : granted) found = found || other == cpu;
      if (!found) {
        throw std::invalid_argument("affinity: CPU " + std::to_string(cpu) + " is not usable here");
      }
    }
    return;
  }
  std::string list;
  for (const int cpu : cpus) list += (list.empty() ? "" : ",") + std::to_string(cpu);
  throw std::invalid_argument("affinity: cannot run on CPUs " + list + ": " + std::strerror(errno));
}

AffinityScope::AffinityScope(const std::vector<int>& cpus) : before_{} {
  static_assert(sizeof(Mask) == sizeof(cpu_set_t), "a mask holds a cpu_set_t");
  if (cpus.empty()) return;
  cpu_set_t before;
  CPU_ZERO(&before);
  if (sched_getaffinity(0, sizeof(before), &before) != 0) return;
  const cpu_set_t wanted = to_mask(cpus);
  if (CPU_EQUAL(&before, &wanted)) return;
  std::memcpy(before_.bytes, &before, sizeof(before));
  changed_ = sched_setaffinity(0, sizeof(wanted), &wanted) == 0;
}

AffinityScope::~AffinityScope() {
  if (!changed_) return;
  cpu_set_t before;
  std::memcpy(&before, before_.bytes, sizeof(before));
  sched_setaffinity(0, sizeof(before), &before);
}

}  // namespace vla
