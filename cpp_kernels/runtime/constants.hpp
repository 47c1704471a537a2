// Values that never change once loaded. Programs share them; they live as long as the last holder.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/kernels.hpp"
#include "runtime/buffer.hpp"
#include "runtime/thread_pool.hpp"

namespace vla {

enum class DType : int32_t { kF32 = 0, kU8 = 1, kI32 = 2 };

int64_t item_bytes(DType dtype);
const char* dtype_name(DType dtype);

// A dense array: biases, tables, position terms.
class Constant {
 public:
  // Copies `count` values. Throws std::invalid_argument for a negative count.
  static std::shared_ptr<const Constant> copy(const void* data, int64_t count, DType dtype);

  // Reads `count` values where they are; `owner` keeps them there. For tables too large to hold twice. Throws
  // std::invalid_argument where `data` is not aligned to the element.
  static std::shared_ptr<const Constant> borrow(const void* data, int64_t count, DType dtype,
                                                std::shared_ptr<const void> owner);

  const std::byte* data() const { return data_; }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * item_bytes(dtype_); }
  DType dtype() const { return dtype_; }

 private:
  Constant(int64_t count, DType dtype);

  int64_t count_;
  DType dtype_;
  AlignedBuffer buffer_;                 // empty where borrowed
  std::shared_ptr<const void> owner_;    // empty where copied
  const std::byte* data_ = nullptr;
};

// How weights are kept.
struct WeightForm {
  WinogradForm winograd = {};     // filters for Winograd's method, where its side is not 0
  bool rows = false;              // those of a linear layer row by row, in place of panels
  bool strassen = false;          // those of a linear layer as sums of quarters, where they are not kept in bfloat16
  bool bf16_where_exact = false;  // in half the memory, where no kept value changes by it
};

// Weights [n][k] of a linear layer, or of a convolution with k = kernel_h * kernel_w * in_c, in the panel layout
// of one instruction set or another form.
class PackedWeights {
 public:
  // Packs on all threads of `pool`. Throws std::invalid_argument for sizes that are not positive, or of another kind than
  // the form is for.
  PackedWeights(const KernelTable& kernels, ThreadPool& pool, const float* weights, int64_t n, int64_t k,
                const WeightForm& form = {});

  const KernelTable& kernels() const { return *kernels_; }
  const float* data() const { return reinterpret_cast<const float*>(buffer_.data()); }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  const WinogradForm& winograd() const { return form_.winograd; }
  bool rows() const { return form_.rows; }
  bool strassen() const { return form_.strassen; }
  bool bf16() const { return bf16_; }
  int64_t bytes() const { return static_cast<int64_t>(buffer_.bytes()); }

 private:
  void pack(const float* weights, Range panels);

  const KernelTable* kernels_;
  int64_t n_;
  int64_t k_;
  WeightForm form_;
  bool bf16_;
  AlignedBuffer buffer_;
};

}  // namespace vla
