// A matrix of weights in blocks of few bits, for linear layers and for tables of embeddings.
#pragma once

#include "kernels/kernels.hpp"
#include "runtime/buffer.hpp"
#include "runtime/thread_pool.hpp"

namespace vla {

class BlockWeights {
 public:
  // Packs the blocks of weights [n][k], `bytes` in all, on all threads of `pool`. Throws std::invalid_argument for sizes
  // that are not positive or no whole blocks, and for another number of bytes.
  BlockWeights(const KernelTable& kernels, ThreadPool& pool, BlockForm form, const std::byte* blocks, int64_t bytes,
               int64_t n, int64_t k);

  const KernelTable& kernels() const { return *kernels_; }
  BlockForm form() const { return form_; }
  const std::byte* data() const { return buffer_.data(); }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t bytes() const { return static_cast<int64_t>(buffer_.bytes()); }

 private:
  const KernelTable* kernels_;
  BlockForm form_;
  int64_t n_;
  int64_t k_;
  AlignedBuffer buffer_;
};

}  // namespace vla
