#include "runtime/constants.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

#include "runtime/partition.hpp"

namespace vla {
namespace {

std::size_t packed_bytes(const KernelTable& kernels, int64_t n, int64_t k, const WinogradForm& form) {
  constexpr int64_t kMaxSide = int64_t{1} << 31;
  if (n <= 0 || k <= 0 || n >= kMaxSide || k >= kMaxSide || n * k >= (int64_t{1} << 56)) {
    throw std::invalid_argument("weights: got " + std::to_string(n) + "x" + std::to_string(k) +
                                ", expected positive sizes below 2^31");
  }
  if (form.side == 0) return static_cast<std::size_t>(kernels.packed_size(n, k)) * sizeof(float);
  const std::string side = std::to_string(form.kernel);
  if (!form.exists()) {
    throw std::invalid_argument("weights: Winograd tiles of side " + std::to_string(form.side) + " for " + side + "x" +
                                side + " filters with stride " + std::to_string(form.stride) +
                                ", expected 2 or 4 for 3x3 with stride 1 or 2, 4 for 7x7 with stride 2");
  }
  if (k % (form.kernel * form.kernel) != 0) {
    throw std::invalid_argument("weights: got " + std::to_string(k) + " values per filter, expected " + side + "x" +
                                side + " filters");
  }
  const int64_t channels = k / (form.kernel * form.kernel);
  return static_cast<std::size_t>(kernels.winograd_packed_size(form, n, channels)) * sizeof(float);
}

}  // namespace

int64_t item_bytes(DType dtype) { return dtype == DType::kU8 ? 1 : 4; }

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kU8: return "uint8";
    case DType::kI32: return "int32";
  }
  return "unknown";
}

Constant::Constant(int64_t count, DType dtype) : count_(count), dtype_(dtype) {
  if (count < 0 || count >= (int64_t{1} << 56)) {
    throw std::invalid_argument("constant: got " + std::to_string(count) + " elements");
  }
}

std::shared_ptr<const Constant> Constant::copy(const void* data, int64_t count, DType dtype) {
  std::shared_ptr<Constant> constant(new Constant(count, dtype));
  const auto bytes = static_cast<std::size_t>(constant->bytes());
  constant->buffer_ = AlignedBuffer(bytes);
  if (bytes > 0) std::memcpy(constant->buffer_.data(), data, bytes);
  constant->data_ = constant->buffer_.data();
  return constant;
}

std::shared_ptr<const Constant> Constant::borrow(const void* data, int64_t count, DType dtype,
                                                 std::shared_ptr<const void> owner) {
  std::shared_ptr<Constant> constant(new Constant(count, dtype));
  if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(item_bytes(dtype)) != 0) {
    throw std::invalid_argument(std::string("constant: borrowed ") + dtype_name(dtype) + " data is not aligned");
  }
  constant->owner_ = std::move(owner);
  constant->data_ = static_cast<const std::byte*>(data);
  return constant;
}

PackedWeights::PackedWeights(const KernelTable& kernels, ThreadPool& pool, const float* weights, int64_t n,
                             int64_t k, const WinogradForm& winograd)
    : kernels_(&kernels),
      n_(n),
      k_(k),
      winograd_(winograd),
      buffer_(packed_bytes(kernels, n, k, winograd)) {
  auto* packed = reinterpret_cast<float*>(buffer_.data());
  const int64_t panels = ceil_div(n, kernels.tile_cols);
  const int64_t chunks = chunk_count(panels, n * k / panels, {pool.threads(), pool.schedule()});
  pool.run(chunks, [&](int64_t chunk, int) noexcept {
    const Range part = slice_of(panels, chunks, chunk);
    if (winograd.side == 0) {
      kernels.pack_weights(weights, n, k, packed, part);
    } else {
      kernels.winograd_pack(winograd, weights, n, k / (winograd.kernel * winograd.kernel), packed, part);
    }
  });
}

}  // namespace vla
