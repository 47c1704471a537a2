#include "runtime/cpu_features.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "runtime/affinity.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace vla {
namespace {

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

// Which register files the operating system saves on a context switch.
uint64_t enabled_states() {
  unsigned low = 0;
  unsigned high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

std::vector<std::string> detect_features() {
  const Registers basic = cpuid(1);
  const Registers extended = cpuid(7);
  const Registers extended1 = cpuid(7, 1);
  const auto bit = [](unsigned value, int position) { return ((value >> position) & 1u) != 0; };
  const uint64_t states = bit(basic.ecx, 27) ? enabled_states() : 0;
  const bool ymm = (states & 0x06) == 0x06;
  const bool zmm = (states & 0xe6) == 0xe6;

  std::vector<std::string> found;
  const auto add = [&found](bool present, const char* name) {
    if (present) found.emplace_back(name);
  };
  add(ymm && bit(basic.ecx, 28), "avx");
  add(ymm && bit(basic.ecx, 12), "fma");
  add(ymm && bit(basic.ecx, 29), "f16c");
  add(ymm && bit(extended.ebx, 5), "avx2");
  add(ymm && bit(extended1.eax, 4), "avx_vnni");
  add(zmm && bit(extended.ebx, 16), "avx512f");
  add(zmm && bit(extended.ebx, 17), "avx512dq");
  add(zmm && bit(extended.ebx, 30), "avx512bw");
  add(zmm && bit(extended.ebx, 31), "avx512vl");
  add(zmm && bit(extended.ecx, 11), "avx512_vnni");
  add(zmm && bit(extended1.eax, 5), "avx512_bf16");
  return found;
}

#elif defined(__aarch64__)

std::vector<std::string> detect_features() {
  std::vector<std::string> found = {"neon"};
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) found.emplace_back("asimddp");
  return found;
}

#else

std::vector<std::string> detect_features() { return {}; }

#endif

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string detect_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos) return line.substr(line.find_first_not_of(' ', colon + 1));
  }
  return "unknown";
}

int64_t cache_bytes(int name) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : 0;
}

// The CPUs that share a core name each other; a core is known by that list.
int count_cores(const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const std::string siblings = first_line(topology + "thread_siblings_list");
    cores.insert(siblings.empty() ? "cpu" + std::to_string(cpu) : siblings);
  }
  return static_cast<int>(cores.size());
}

CpuInfo detect() {
  CpuInfo info;
  info.model = detect_model();
  info.features = detect_features();
#ifdef _SC_LEVEL1_DCACHE_SIZE
  info.l1d_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE);
  info.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
  info.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
#endif
  return info;
}

// Whole CPUs that the control group of this process grants; 0 where it sets no limit.
int quota_cpus() {
  std::istringstream line(first_line("/sys/fs/cgroup/cpu.max"));
  double quota = 0;
  double period = 0;
  if (!(line >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>(quota / period));
}

}  // namespace

bool CpuInfo::has(const std::string& feature) const {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

CpuInfo cpu_info() {
  static const CpuInfo detected = detect();
  CpuInfo info = detected;
  const std::vector<int> cpus = current_affinity();
  info.logical_cpus = static_cast<int>(cpus.size());
  info.physical_cores = count_cores(cpus);
  return info;
}

int default_threads() {
  const int cores = std::max(1, cpu_info().physical_cores);
  const int quota = quota_cpus();
  return quota > 0 ? std::min(cores, quota) : cores;
}

}  // namespace vla
