// The one block of memory that holds every tensor a policy computes; programs address it by byte offset.
#pragma once

#include "runtime/buffer.hpp"

namespace vla {

class Arena {
 public:
  explicit Arena(std::size_t bytes) : buffer_(bytes) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return buffer_.data(); }
  std::size_t bytes() const { return buffer_.bytes(); }

 private:
  AlignedBuffer buffer_;
};

}  // namespace vla
