// What the kernels' tests share: the tables that this machine can run, seeded data, and buffers whose
// ends are guarded so that a write past a result is seen without a sanitizer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "kernels/tables.hpp"

namespace vla::test {

inline std::vector<const KernelTable*> runnable_tables() {
  std::vector<const KernelTable*> tables = {portable_kernels()};
#if defined(__x86_64__)
  if (avx2_kernels() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    tables.push_back(avx2_kernels());
  }
  if (avx512_kernels() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    tables.push_back(avx512_kernels());
  }
#endif
  if (neon_kernels()) tables.push_back(neon_kernels());
  return tables;
}

template <typename F>
void for_each_isa(F body) {
  for (const KernelTable* table : runnable_tables()) {
    const check::Context context(table->isa);
    body(*table);
  }
}

using Floats = std::vector<float>;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(engine_); }
  Floats floats(int64_t count, float low = -1.0f, float high = 1.0f) {
    Floats values(static_cast<size_t>(count));
    for (float& v : values) v = uniform(low, high);
    return values;
  }

 private:
  std::mt19937 engine_;
};

// A matrix inside a larger allocation: `ld` may exceed `cols`, and everything outside the matrix keeps a
// marker that `intact` looks for.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t cols, int64_t ld) : rows_(rows), cols_(cols), ld_(ld) {
    values_.assign(static_cast<size_t>(rows * ld + kGuard), kMarker);
  }
  float* data() { return values_.data(); }
  float& at(int64_t r, int64_t c) { return values_[static_cast<size_t>(r * ld_ + c)]; }
  int64_t ld() const { return ld_; }
  bool intact() const {
    for (size_t i = 0; i < values_.size(); ++i) {
      const int64_t r = static_cast<int64_t>(i) / ld_, c = static_cast<int64_t>(i) % ld_;
      if ((r >= rows_ || c >= cols_) && values_[i] != kMarker) return false;
    }
    return true;
  }
  Floats copy() const { return values_; }

 private:
  static constexpr int64_t kGuard = 64;
  static constexpr float kMarker = -777.25f;
  int64_t rows_, cols_, ld_;
  Floats values_;
};

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline int64_t panels(const KernelTable& table, int64_t n) { return (n + table.tile_cols - 1) / table.tile_cols; }

inline Floats packed(const KernelTable& table, const Floats& w, int64_t n, int64_t k) {
  Floats out(static_cast<size_t>(table.packed_size(n, k)), -777.25f);
  table.pack_weights(w.data(), n, k, out.data(), {0, panels(table, n)});
  return out;
}

inline double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kGelu:
      return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kMish:
      return x * std::tanh(std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.0));
    case Activation::kSigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case Activation::kExp:
      return std::exp(x);
    case Activation::kNone:
      break;
  }
  return x;
}

// What k terms of at most one, with their epilogue, may be off: a few units in the last place of the sum.
inline double product_tolerance(int64_t k) { return 1.2e-7 * (20.0 + 0.6 * static_cast<double>(k)); }

// What follows a product, in double precision.
inline double epilogue(double product, const Epilogue& e, int64_t row, int64_t col) {
  if (e.bias) product += e.bias[col];
  if (e.residual) product += e.residual[row * e.residual_ld + col];
  product = activated(product, e.activation);
  if (e.gamma) product = (1.0 + e.gamma[col]) * product + e.beta[col];
  return product;
}

}  // namespace vla::test
