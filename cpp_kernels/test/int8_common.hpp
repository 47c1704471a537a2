// What the tests of the INT8 kernels share: the variants that this machine can run, and the arithmetic that they
// must reproduce, in plain whole numbers.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/int8_tables.hpp"
#include "kernels_common.hpp"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace vla::test {

inline std::vector<const Int8Table*> runnable_int8() {
  std::vector<const Int8Table*> tables = {int8_portable_kernels()};
#if defined(__x86_64__)
  for (const KernelTable* table : runnable_tables()) {
    if (table == avx2_kernels()) tables.push_back(int8_avx2_kernels());
    if (table == avx512_kernels()) tables.push_back(int8_avx512_kernels());
    if (table == avx512_kernels() && __builtin_cpu_supports("avx512vnni")) tables.push_back(int8_avx512vnni_kernels());
  }
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __asm__("cpuid" : "=a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx) : "a"(7), "c"(1));
  if (tables.size() > 1 && ((eax >> 4) & 1u) != 0) tables.push_back(int8_avxvnni_kernels());
#elif defined(__aarch64__)
  tables.push_back(int8_neon_kernels());
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) tables.push_back(int8_neondot_kernels());
#endif
  return tables;
}

template <typename F>
void for_each_int8(F body) {
  for (const Int8Table* table : runnable_int8()) {
    const check::Context context(table->name);
    body(*table);
  }
}

// A group of values quantized together.
struct Quantized {
  float scale = 0.0f;
  std::vector<int> values;
};

inline Quantized quantized(const float* x, int64_t count) {
  Quantized q;
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  q.scale = largest / 127.0f;
  for (int64_t i = 0; i < count; ++i) {
    const float ratio = q.scale > 0.0f ? x[i] / q.scale : 0.0f;
    q.values.push_back(static_cast<int>(std::clamp(std::nearbyintf(ratio), -127.0f, 127.0f)));
  }
  return q;
}

inline int64_t int8_panels(const Int8Table& table, int64_t n) { return (n + table.tile_cols - 1) / table.tile_cols; }

// Bytes that start on a cache line, with a marker behind them that `intact` looks for.
class Bytes {
 public:
  explicit Bytes(int64_t count) : count_(static_cast<size_t>(count)), values_(count_ + 2 * kLine, kMarker) {}
  std::byte* data() { return values_.data() + offset(); }
  bool intact() const {
    for (size_t i = offset() + count_; i < values_.size(); ++i) {
      if (values_[i] != kMarker) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kLine = 64;
  static constexpr std::byte kMarker{0xa5};
  size_t offset() const { return (kLine - reinterpret_cast<uintptr_t>(values_.data()) % kLine) % kLine; }
  size_t count_;
  std::vector<std::byte> values_;
};

inline Bytes int8_packed(const Int8Table& table, const Floats& w, int64_t n, Int8Runs runs) {
  Bytes out(table.packed_bytes(n, runs));
  table.pack(w.data(), n, runs, out.data(), {0, int8_panels(table, n)});
  CHECK(out.intact());
  return out;
}

}  // namespace vla::test
