#include "runtime/key_values.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

namespace vla {
namespace {

std::size_t state_bytes(const KernelTable& kernels, const KeyValueShape& shape) {
  constexpr int64_t kMost = int64_t{1} << 20;
  for (const int64_t size : {shape.rows, shape.kv_heads, shape.head_dim}) {
    if (size < 1 || size > kMost) {
      throw std::invalid_argument("state: got " + std::to_string(shape.rows) + " rows of " +
                                  std::to_string(shape.kv_heads) + " key-value heads of " +
                                  std::to_string(shape.head_dim) + ", expected 1 to 2^20 of each");
    }
  }
  return static_cast<std::size_t>(kernels.key_value_size(shape)) * sizeof(float);
}

}  // namespace

KeyValues::KeyValues(const KernelTable& kernels, const KeyValueShape& shape)
    : kernels_(&kernels), shape_(shape), buffer_(state_bytes(kernels, shape)) {
  std::memset(buffer_.data(), 0, buffer_.bytes());
}

}  // namespace vla
