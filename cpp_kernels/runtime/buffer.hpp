// Cache-line aligned memory of a fixed size, not initialized, owned by one holder.
#pragma once

#include <cstddef>
#include <memory>

namespace vla {

constexpr std::size_t kAlignment = 64;

class Slab;

// Gives a piece of a slab back.
struct ReleasePiece {
  std::shared_ptr<Slab> slab;
  std::size_t bytes = 0;
  void operator()(std::byte* data) const;
};

// Buffers lie side by side in slabs of large pages where the kernel grants them: weights and activations are
// walked with large strides, and with pages of 4 KiB much of the time goes into looking them up.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Throws std::bad_alloc.
  explicit AlignedBuffer(std::size_t bytes);

  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<std::byte, ReleasePiece> data_;
  std::size_t bytes_ = 0;
};

}  // namespace vla
