#include "runtime/affinity.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace vla {
namespace {

// CPUs that the system lets this process run on, whichever of them this thread is held to: "0, 1".
std::string usable_cpus() {
  cpu_set_t before, all;
  CPU_ZERO(&before);
  std::memset(&all, 0xff, sizeof(all));
  if (sched_getaffinity(0, sizeof(before), &before) != 0) return "none";
  std::string list;
  // The system drops CPUs that there are not without a word.
  if (sched_setaffinity(0, sizeof(all), &all) == 0) {
    for (const int cpu : current_affinity()) list += (list.empty() ? "" : ", ") + std::to_string(cpu);
    sched_setaffinity(0, sizeof(before), &before);
  }
  return list.empty() ? "none" : list;
}

[[noreturn]] void refuse(int cpu, const char* why) {
  throw std::invalid_argument("affinity: CPU " + std::to_string(cpu) + " " + why + ", expected some of " +
                              usable_cpus());
}

cpu_set_t to_mask(const std::vector<int>& cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) refuse(cpu, "does not exist");
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
  // Granted, too, where only some of them are usable; refused with EINVAL where none is.
  const bool granted = sched_setaffinity(0, sizeof(mask), &mask) == 0;
  if (!granted && errno != EINVAL) {
    throw std::invalid_argument(std::string("affinity: the system refuses: ") + std::strerror(errno));
  }
  const std::vector<int> usable = granted ? current_affinity() : std::vector<int>();
  for (const int cpu : cpus) {
    if (std::find(usable.begin(), usable.end(), cpu) == usable.end()) refuse(cpu, "is not usable here");
  }
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
