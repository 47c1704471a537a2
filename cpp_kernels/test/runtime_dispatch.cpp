#include <cstdlib>
#include <stdexcept>

#include "check.hpp"
#include "kernels/tables.hpp"
#include "runtime/cpu_features.hpp"
#include "runtime/dispatch.hpp"
#include "runtime/int8_dispatch.hpp"
#include "runtime/probe.hpp"

using namespace vla;

namespace {

// The message of the error that choosing `isa` ends in; empty where it succeeds.
std::string refusal(const std::string& isa) {
  try {
    select_kernels(isa);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

std::string int8_refusal(const std::string& variant) {
  try {
    select_int8(variant, "portable");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(each_available_isa_can_be_chosen) {
  unsetenv("VLA_SIMD_ISA");
  const std::vector<std::string> isas = available_isas();
  CHECK(!isas.empty() && isas.back() == "portable");
  for (const std::string& isa : isas) CHECK(select_kernels(isa).isa == isa);
  CHECK(select_kernels("").isa == isas.front());
}

TEST(the_environment_forces_an_isa) {
  setenv("VLA_SIMD_ISA", "portable", 1);
  CHECK(select_kernels("").isa == std::string("portable"));
  CHECK(select_kernels(available_isas().front()).isa == available_isas().front());
  setenv("VLA_SIMD_ISA", "mmx", 1);
  CHECK(contains(refusal(""), "VLA_SIMD_ISA='mmx': unknown instruction set"));
  CHECK(contains(refusal(""), "portable"));
  unsetenv("VLA_SIMD_ISA");
}

TEST(what_cannot_run_is_refused_with_the_reason) {
  CHECK(contains(refusal("sse"), "isa='sse': unknown instruction set"));
  const std::string foreign = neon_kernels() == nullptr ? "neon" : "avx2";
  CHECK(contains(refusal(foreign), "isa='" + foreign + "': it is not part of this build, available here: "));
  CHECK(contains(refusal(foreign), ", portable") || contains(refusal(foreign), ": portable"));
  if (avx512_kernels() != nullptr && !cpu_info().has("avx512f")) CHECK(contains(refusal("avx512"), "lacks avx512f"));
}

TEST(int8_kernels_have_the_vectors_of_the_isa_and_the_best_instructions) {
  unsetenv("VLA_SIMD_INT8");
  const std::vector<std::string> variants = available_int8();
  CHECK(!variants.empty() && variants.back() == "portable");
  for (const std::string& variant : variants) CHECK(select_int8(variant, "portable").name == variant);
  CHECK(select_int8("", "portable").name == std::string("portable"));
  const CpuInfo cpu = cpu_info();
  for (const std::string& isa : available_isas()) {
    const std::string name = select_int8("", isa).name;
    if (isa == "avx512") CHECK(name == (cpu.has("avx512_vnni") ? "avx512vnni" : "avx512"));
    if (isa == "avx2") CHECK(name == (cpu.has("avx_vnni") ? "avxvnni" : "avx2"));
    if (isa == "neon") CHECK(name == (cpu.has("asimddp") ? "neondot" : "neon"));
  }
}

TEST(the_environment_forces_int8_kernels) {
  setenv("VLA_SIMD_INT8", "portable", 1);
  CHECK(select_int8("", available_isas().front()).name == std::string("portable"));
  CHECK(select_int8(available_int8().front(), "portable").name == available_int8().front());
  setenv("VLA_SIMD_INT8", "mmx", 1);
  CHECK(contains(int8_refusal(""), "VLA_SIMD_INT8='mmx': unknown INT8 kernels, available here: "));
  unsetenv("VLA_SIMD_INT8");
  CHECK(contains(int8_refusal("sse"), "int8='sse': unknown INT8 kernels"));
  const std::string foreign = neon_kernels() == nullptr ? "neondot" : "avxvnni";
  CHECK(contains(int8_refusal(foreign), "int8='" + foreign + "': it is not part of this build, available here: "));
}

TEST(the_cpu_is_described) {
  const CpuInfo info = cpu_info();
  CHECK(!info.model.empty());
  CHECK(info.logical_cpus >= 1);
  CHECK(info.physical_cores >= 1 && info.physical_cores <= info.logical_cpus);
  CHECK(default_threads() >= 1 && default_threads() <= info.physical_cores);
  CHECK(!info.has("a feature that no CPU has"));
}

TEST(the_peak_is_positive) {
  for (const std::string& isa : available_isas()) CHECK(fma_peak(select_kernels(isa), 0.01) > 1e6);
  bool refused = false;
  try {
    fma_peak(select_kernels("portable"), 0.0);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}

CHECK_MAIN()
