#include "runtime/block_weights.hpp"

#include <stdexcept>
#include <string>

#include "runtime/partition.hpp"

namespace vla {
namespace {

std::size_t packed_bytes(const KernelTable& kernels, BlockForm form, int64_t bytes, int64_t n, int64_t k) {
  constexpr int64_t kMaxSide = int64_t{1} << 31;
  if (n <= 0 || k <= 0 || n >= kMaxSide || k >= kMaxSide || k % kBlockValues != 0) {
    throw std::invalid_argument("weights in blocks: got " + std::to_string(n) + "x" + std::to_string(k) +
                                ", expected positive sizes below 2^31 and rows of whole blocks of " +
                                std::to_string(kBlockValues));
  }
  const int64_t row_bytes = k / kBlockValues * block_bytes(form);
  if (bytes != n * row_bytes) {
    throw std::invalid_argument("weights in blocks: got " + std::to_string(bytes) + " bytes for " + std::to_string(n) +
                                "x" + std::to_string(k) + ", expected " + std::to_string(n * row_bytes));
  }
  return static_cast<std::size_t>(ceil_div(n, kernels.tile_cols) * kernels.tile_cols * row_bytes);
}

}  // namespace

BlockWeights::BlockWeights(const KernelTable& kernels, ThreadPool& pool, BlockForm form, const std::byte* blocks,
                           int64_t bytes, int64_t n, int64_t k)
    : kernels_(&kernels), form_(form), n_(n), k_(k), buffer_(packed_bytes(kernels, form, bytes, n, k)) {
  const int64_t panels = ceil_div(n, kernels.tile_cols);
  const int64_t chunks = chunk_count(panels, 8 * kernels.tile_cols * k, {pool.threads(), pool.schedule()});
  pool.run(chunks, [&](int64_t chunk, int) noexcept {
    kernels.pack_blocks(form, blocks, n, k, buffer_.data(), slice_of(panels, chunks, chunk));
  });
}

}  // namespace vla
