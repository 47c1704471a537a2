#include "runtime/int8_weights.hpp"

#include <stdexcept>
#include <string>

#include "runtime/partition.hpp"

namespace vla {
namespace {

// Of 3x3 filters in rows.
int64_t channels_of(Int8Runs runs) { return runs.run / 3; }

std::size_t packed_bytes(const Int8Table& kernels, int64_t n, Int8Runs runs, bool winograd) {
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
  if (!winograd) return static_cast<std::size_t>(kernels.packed_bytes(n, runs));
  if (kernels.winograd == nullptr || runs.runs != 3 || runs.run % 3 != 0) {
    throw std::invalid_argument("INT8 weights: " + std::to_string(runs.runs) + "x" + std::to_string(runs.run) +
                                " weights per channel on the INT8 kernels " + kernels.name +
                                ", Winograd's method takes 3x3 filters on kernels with products of 16 bits");
  }
  return static_cast<std::size_t>(kernels.winograd_packed_bytes(n, channels_of(runs)));
}

}  // namespace

Int8Weights::Int8Weights(const Int8Table& kernels, ThreadPool& pool, const float* weights, int64_t n, Int8Runs runs,
                         bool winograd)
    : kernels_(&kernels), n_(n), runs_(runs), winograd_(winograd), buffer_(packed_bytes(kernels, n, runs, winograd)) {
  const int64_t panels = ceil_div(n, kernels.tile_cols);
  const int64_t chunks = chunk_count(panels, 64 * kernels.tile_cols * k(), {pool.threads()});
  pool.run(chunks, [&](int64_t chunk, int) noexcept {
    const Range some = slice_of(panels, chunks, chunk);
    if (winograd) {
      kernels.winograd_pack(weights, n, channels_of(runs), buffer_.data(), some);
    } else {
      kernels.pack(weights, n, runs, buffer_.data(), some);
    }
  });
}

}  // namespace vla
