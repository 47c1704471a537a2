#include "runtime/dispatch.hpp"

#include <array>
#include <cstdlib>
#include <stdexcept>

#include "kernels/tables.hpp"
#include "runtime/cpu_features.hpp"

namespace vla {
namespace {

struct Isa {
  const char* name;
  const KernelTable* (*table)();
  std::vector<std::string> needs;
};

// Best first.
const std::array<Isa, 4>& known_isas() {
  static const std::array<Isa, 4> isas = {{
      {"avx512", avx512_kernels, {"avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512bw", "avx512vl"}},
      {"avx2", avx2_kernels, {"avx2", "fma", "f16c"}},
      {"neon", neon_kernels, {"neon"}},
      {"portable", portable_kernels, {}},
  }};
  return isas;
}

// Empty where the kernels of `isa` can run here.
std::string why_not(const Isa& isa, const CpuInfo& cpu) {
  if (isa.table() == nullptr) return "it is not part of this build";
  for (const std::string& feature : isa.needs) {
    if (!cpu.has(feature)) return "this CPU (" + cpu.model + ") lacks " + feature;
  }
  return "";
}

}  // namespace

std::string why_not_isa(const std::string& isa) {
  const CpuInfo cpu = cpu_info();
  for (const Isa& known : known_isas()) {
    if (isa == known.name) return why_not(known, cpu);
  }
  return "unknown instruction set";
}

std::vector<std::string> available_isas() {
  const CpuInfo cpu = cpu_info();
  std::vector<std::string> names;
  for (const Isa& isa : known_isas()) {
    if (why_not(isa, cpu).empty()) names.emplace_back(isa.name);
  }
  return names;
}

void refuse_kernels(const std::string& source, const std::string& wanted, const std::string& reason,
                    const std::vector<std::string>& available) {
  std::string names;
  for (const std::string& name : available) names += (names.empty() ? "" : ", ") + name;
  throw std::invalid_argument(source + "='" + wanted + "': " + reason + ", available here: " + names);
}

const KernelTable& select_kernels(const std::string& isa) {
  std::string wanted = isa;
  std::string source = "isa";
  if (wanted.empty()) {
    if (const char* forced = std::getenv("VLA_SIMD_ISA")) wanted = forced;
    source = "VLA_SIMD_ISA";
  }
  const CpuInfo cpu = cpu_info();
  for (const Isa& candidate : known_isas()) {
    if (!wanted.empty() && wanted != candidate.name) continue;
    const std::string reason = why_not(candidate, cpu);
    if (reason.empty()) return *candidate.table();
    if (!wanted.empty()) refuse_kernels(source, wanted, reason, available_isas());
  }
  refuse_kernels(source, wanted, "unknown instruction set", available_isas());
}

}  // namespace vla
