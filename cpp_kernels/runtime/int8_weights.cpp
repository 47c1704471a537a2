#include "runtime/int8_weights.hpp"

#include <stdexcept>
#include <string>

#include "runtime/partition.hpp"

namespace vla {
namespace {

std::size_t packed_bytes(const Int8Table& kernels, int64_t n, Int8Runs runs) {
  constexpr int64_t kMaxChannels = int64_t{1} << 31;
  if (n <= 0 || n >= kMaxChannels || runs.runs <= 0 || runs.run <= 0) {
    throw std::invalid_argument("INT8 weights: got " + std::to_string(n) + " channels of " +
                                std::to_string(runs.runs) + "x" + std::to_string(runs.run) +
                                " weights, expected positive sizes below 2^31");
  }
  if (runs.run > kInt8MaxDepth / runs.runs) {
    throw std::invalid_argument("INT8 weights: got " + std::to_string(runs.runs) + "x" + std::to_string(runs.run) +
                                " weights per channel, expected at most " + std::to_string(kInt8MaxDepth) +
                                ", whose sum of products 32 bits always hold");
  }
  return static_cast<std::size_t>(kernels.packed_bytes(n, runs));
}

}  // namespace

Int8Weights::Int8Weights(const Int8Table& kernels, ThreadPool& pool, const float* weights, int64_t n, Int8Runs runs)
    : kernels_(&kernels), n_(n), runs_(runs), buffer_(packed_bytes(kernels, n, runs)) {
  const int64_t panels = ceil_div(n, kernels.tile_cols);
  const int64_t chunks = chunk_count(panels, 64 * kernels.tile_cols * k(), {pool.threads()});
  pool.run(chunks, [&](int64_t chunk, int) noexcept {
    kernels.pack(weights, n, runs, buffer_.data(), slice_of(panels, chunks, chunk));
  });
}

}  // namespace vla
