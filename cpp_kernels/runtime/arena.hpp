// The one block of memory that holds every tensor a policy computes; programs address it by byte offset.
#pragma once

#include <cstring>

#include "runtime/buffer.hpp"

namespace vla {

class Arena {
 public:
  // Zeroed, so that its pages are there before the first run and no run depends on what was in them.
  explicit Arena(std::size_t bytes) : buffer_(bytes) {
    if (bytes > 0) std::memset(buffer_.data(), 0, bytes);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return buffer_.data(); }
  std::size_t bytes() const { return buffer_.bytes(); }

 private:
  AlignedBuffer buffer_;
};

}  // namespace vla
