#include "runtime/constants.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "runtime/partition.hpp"

namespace vla {
namespace {

// How many values of weights [n][k] are kept.
int64_t kept_values(const KernelTable& kernels, int64_t n, int64_t k, const WeightForm& weights) {
  const WinogradForm& form = weights.winograd;
  constexpr int64_t kMaxSide = int64_t{1} << 31;
  if (n <= 0 || k <= 0 || n >= kMaxSide || k >= kMaxSide || n * k >= (int64_t{1} << 56)) {
    throw std::invalid_argument("weights: got " + std::to_string(n) + "x" + std::to_string(k) +
                                ", expected positive sizes below 2^31");
  }
  if (form.side == 0 && weights.strassen) {
    if (weights.rows || !kernels.strassen_fits(n, k)) {
      throw std::invalid_argument("weights: " + std::to_string(n) + "x" + std::to_string(k) +
                                  " do not divide into quarters of whole panels for Strassen's method");
    }
    return kernels.strassen_packed_size(n, k);
  }
  if (form.side == 0) return weights.rows ? n * k : kernels.packed_size(n, k);
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
  return kernels.winograd_packed_size(form, n, channels);
}

// Whether the lower half of every value is zero. Ends at the first that is not, in weights of fp32 at once.
bool all_bf16(const float* weights, int64_t count) {
  constexpr int64_t kAtOnce = 4096;
  for (int64_t first = 0; first < count; first += kAtOnce) {
    uint32_t any = 0;
    for (int64_t i = first; i < std::min(first + kAtOnce, count); ++i) {
      uint32_t bits;
      std::memcpy(&bits, weights + i, sizeof bits);
      any |= bits;
    }
    if ((any & 0xffffu) != 0) return false;
  }
  return true;
}

void upper_halves(const float* values, int64_t count, uint16_t* halves) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    halves[i] = static_cast<uint16_t>(bits >> 16);
  }
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
                             int64_t k, const WeightForm& form)
    : kernels_(&kernels),
      n_(n),
      k_(k),
      form_(form),
      bf16_(false) {
  kept_values(kernels, n, k, form);  // before anything is read
  // Winograd's method transforms filters, so that they are no such values any more.
  bf16_ = form.bf16_where_exact && form.winograd.side == 0 && all_bf16(weights, n * k);
  if (bf16_) form_.strassen = false;
  const int64_t values = kept_values(kernels, n, k, form_);
  buffer_ = AlignedBuffer(static_cast<std::size_t>(values) * (bf16_ ? sizeof(uint16_t) : sizeof(float)));
  const int64_t panels = ceil_div(n, kernels.tile_cols) / (strassen() ? 2 : 1);
  const int64_t chunks = chunk_count(panels, n * k / panels, {pool.threads(), pool.schedule()});
  pool.run(chunks, [&](int64_t chunk, int) noexcept { pack(weights, slice_of(panels, chunks, chunk)); });
}

void PackedWeights::pack(const float* weights, Range panels) {
  auto* packed = reinterpret_cast<float*>(buffer_.data());
  auto* halves = reinterpret_cast<uint16_t*>(buffer_.data());
  const WinogradForm& winograd = form_.winograd;
  if (winograd.side != 0) {
    kernels_->winograd_pack(winograd, weights, n_, k_ / (winograd.kernel * winograd.kernel), packed, panels);
  } else if (form_.strassen) {
    kernels_->strassen_pack(weights, n_, k_, packed, panels);
  } else if (form_.rows) {
    const int64_t first = panels.begin * kernels_->tile_cols * k_;
    const int64_t count = std::min(n_, panels.end * kernels_->tile_cols) * k_ - first;
    if (bf16_) return upper_halves(weights + first, count, halves + first);
    std::memcpy(packed + first, weights + first, static_cast<std::size_t>(count) * sizeof(float));
  } else if (bf16_) {
    kernels_->pack_bf16(weights, n_, k_, halves, panels);
  } else {
    kernels_->pack_weights(weights, n_, k_, packed, panels);
  }
}

}  // namespace vla
