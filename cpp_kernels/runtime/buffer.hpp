// Cache-line aligned memory of a fixed size, not initialized, owned by one holder.
#pragma once

#include <cstddef>
#include <memory>

namespace vla {

constexpr std::size_t kAlignment = 64;

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Throws std::bad_alloc.
  explicit AlignedBuffer(std::size_t bytes);

  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Release {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Release> data_;
  std::size_t bytes_ = 0;
};

}  // namespace vla
