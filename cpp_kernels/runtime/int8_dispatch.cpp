#include "runtime/int8_dispatch.hpp"

#include <array>
#include <cstdlib>
#include <stdexcept>

#include "kernels/int8_tables.hpp"
#include "runtime/cpu_features.hpp"
#include "runtime/dispatch.hpp"

namespace vla {
namespace {

struct Variant {
  const char* name;
  const char* isa;  // whose vectors it has, and which the CPU must have
  const Int8Table* (*table)();
  const char* needs;  // of the CPU, besides; may be null
};

// Best first among those of one instruction set.
constexpr std::array<Variant, 7> kVariants = {{
    {"avx512vnni", "avx512", int8_avx512vnni_kernels, "avx512_vnni"},
    {"avxvnni", "avx2", int8_avxvnni_kernels, "avx_vnni"},
    {"avx512", "avx512", int8_avx512_kernels, nullptr},
    {"avx2", "avx2", int8_avx2_kernels, nullptr},
    {"neondot", "neon", int8_neondot_kernels, "asimddp"},
    {"neon", "neon", int8_neon_kernels, nullptr},
    {"portable", "portable", int8_portable_kernels, nullptr},
}};

// Empty where the variant can run here.
std::string why_not(const Variant& variant, const CpuInfo& cpu) {
  if (variant.table() == nullptr) return "it is not part of this build";
  const std::string lacks = "this CPU (" + cpu.model + ") lacks ";
  if (const std::string reason = why_not_isa(variant.isa); !reason.empty()) return reason;
  if (variant.needs != nullptr && !cpu.has(variant.needs)) return lacks + variant.needs;
  return "";
}

}  // namespace

std::vector<std::string> available_int8() {
  const CpuInfo cpu = cpu_info();
  std::vector<std::string> names;
  for (const Variant& variant : kVariants) {
    if (why_not(variant, cpu).empty()) names.emplace_back(variant.name);
  }
  return names;
}

const Int8Table& select_int8(const std::string& variant, const std::string& isa) {
  std::string wanted = variant;
  std::string source = "int8";
  if (wanted.empty()) {
    if (const char* forced = std::getenv("VLA_SIMD_INT8")) wanted = forced;
    source = "VLA_SIMD_INT8";
  }
  const CpuInfo cpu = cpu_info();
  for (const Variant& candidate : kVariants) {
    if (wanted.empty() ? isa != candidate.isa : wanted != candidate.name) continue;
    const std::string reason = why_not(candidate, cpu);
    if (reason.empty()) return *candidate.table();
    if (!wanted.empty()) refuse_kernels(source, wanted, reason, available_int8());
  }
  refuse_kernels(source, wanted, "unknown INT8 kernels", available_int8());
}

}  // namespace vla
