#include "runtime/buffer.hpp"

#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

#include "runtime/slab.hpp"

namespace vla {

AlignedBuffer::AlignedBuffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
#ifdef VLA_SANITIZED  // the sanitizers guard the ends of what comes from the heap, not of pieces of a slab
  if (bytes > std::numeric_limits<std::size_t>::max() - kAlignment) throw std::bad_alloc();
  void* data = nullptr;
  if (posix_memalign(&data, kAlignment, bytes) != 0) throw std::bad_alloc();
  data_ = std::unique_ptr<std::byte, ReleasePiece>(static_cast<std::byte*>(data), ReleasePiece{nullptr, bytes});
#else
  Piece piece = take_piece(bytes);
  data_ = std::unique_ptr<std::byte, ReleasePiece>(piece.data, ReleasePiece{std::move(piece.slab), bytes});
#endif
}

void ReleasePiece::operator()(std::byte* data) const {
  if (slab == nullptr) {
    std::free(data);
  } else {
    slab->discard(data, bytes);
  }
}

}  // namespace vla
