// Weights of a linear layer or convolution, quantized to INT8 and packed for one variant of the INT8 kernels.
#pragma once

#include "kernels/int8.hpp"
#include "runtime/buffer.hpp"
#include "runtime/thread_pool.hpp"

namespace vla {

class Int8Weights {
 public:
  // Quantizes and packs weights [n][runs][run] on all threads of `pool`, for Winograd's method where asked: 3x3 filters
  // in three runs. Throws std::invalid_argument for sizes that are not positive, for sums of products that 32 bits may
  // not hold, and where the variant or the filters have no such form.
  Int8Weights(const Int8Table& kernels, ThreadPool& pool, const float* weights, int64_t n, Int8Runs runs,
              bool winograd = false);

  const Int8Table& kernels() const { return *kernels_; }
  const std::byte* data() const { return buffer_.data(); }
  int64_t n() const { return n_; }
  Int8Runs runs() const { return runs_; }
  bool winograd() const { return winograd_; }
  int64_t k() const { return runs_.runs * runs_.run; }
  int64_t bytes() const { return static_cast<int64_t>(buffer_.bytes()); }

 private:
  const Int8Table* kernels_;
  int64_t n_;
  Int8Runs runs_;
  bool winograd_;
  AlignedBuffer buffer_;
};

}  // namespace vla
