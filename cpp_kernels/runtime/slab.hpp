// Memory in large pages, handed out piece by piece and given back as a whole.
#pragma once

#include <cstddef>
#include <memory>

namespace vla {

class Slab {
 public:
  // Throws std::bad_alloc.
  explicit Slab(std::size_t bytes);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  // The next `bytes`, aligned to a cache line; null when they are not left.
  std::byte* take(std::size_t bytes);

  // Lets go of the pages that hold nothing but this piece. Its addresses are not handed out again.
  void discard(std::byte* piece, std::size_t bytes);

 private:
  std::byte* data_;
  std::size_t bytes_;
  std::size_t used_ = 0;
};

// A piece of memory, and the slab that it is in: small ones share slabs, which live until the last piece is gone.
// Throws std::bad_alloc.
struct Piece {
  std::shared_ptr<Slab> slab;
  std::byte* data;
};
Piece take_piece(std::size_t bytes);

}  // namespace vla
