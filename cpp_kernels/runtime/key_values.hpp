// The memory of a state: keys and values that programs append to and attend to, and that outlive them.
#pragma once

#include "kernels/kernels.hpp"
#include "runtime/buffer.hpp"

namespace vla {

class KeyValues {
 public:
  // Zero. Throws std::invalid_argument for sizes that are not positive.
  KeyValues(const KernelTable& kernels, const KeyValueShape& shape);
  KeyValues(const KeyValues&) = delete;
  KeyValues& operator=(const KeyValues&) = delete;

  // Whose layout it has.
  const KernelTable& kernels() const { return *kernels_; }
  const KeyValueShape& shape() const { return shape_; }
  float* data() const { return reinterpret_cast<float*>(buffer_.data()); }
  int64_t bytes() const { return static_cast<int64_t>(buffer_.bytes()); }

 private:
  const KernelTable* kernels_;
  KeyValueShape shape_;
  AlignedBuffer buffer_;
};

}  // namespace vla
