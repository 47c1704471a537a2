// Memory in large pages, and the pieces it is handed out in.
#include "runtime/slab.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "check.hpp"
#include "runtime/buffer.hpp"

using namespace vla;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0; }

// Pages of a range that are in memory; the range begins at a page.
std::size_t resident(const std::byte* data, std::size_t bytes) {
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  if (mincore(const_cast<std::byte*>(data), bytes, pages.data()) != 0) return 0;
  std::size_t count = 0;
  for (const unsigned char page : pages) count += page & 1;
  return count;
}

}  // namespace

TEST(pieces_lie_side_by_side_and_do_not_overlap) {
  Slab slab(4 * kMiB);
  std::byte* first = slab.take(100);
  std::byte* second = slab.take(1);
  std::byte* third = slab.take(3 * kMiB);
  CHECK(aligned(first) && aligned(second) && aligned(third));
  CHECK(second == first + 128);
  CHECK(third == second + 64);
  CHECK(slab.take(kMiB) == nullptr);  // 192 bytes are missing
  std::byte* last = slab.take(kMiB - 192);
  CHECK(last != nullptr);
  CHECK(slab.take(1) == nullptr);
  std::memset(first, 1, 100);
  std::memset(last, 2, kMiB - 192);
  CHECK(first[99] == std::byte{1} && last[kMiB - 193] == std::byte{2});
}

TEST(the_end_of_a_slab_is_no_large_page) {
  Slab slab(2 * kMiB + 100);
  CHECK(slab.take(2 * kMiB + 100) != nullptr);
  CHECK(slab.take(64 * 1024) == nullptr);  // a page at most is over
}

TEST(what_is_discarded_leaves_memory_and_its_neighbours_stay) {
  Slab slab(4 * kMiB);
  std::byte* before = slab.take(4096);
  std::byte* piece = slab.take(2 * kMiB);
  std::byte* after = slab.take(4096);
  std::memset(before, 1, 4096);
  std::memset(piece, 2, 2 * kMiB);
  std::memset(after, 3, 4096);
  CHECK(resident(piece, 2 * kMiB) == 512);
  slab.discard(piece, 2 * kMiB);
  CHECK(resident(piece, 2 * kMiB) <= 2);
  CHECK(before[4095] == std::byte{1} && after[0] == std::byte{3});
}

TEST(small_pieces_share_a_slab_and_large_ones_have_their_own) {
  const Piece first = take_piece(kMiB), second = take_piece(10), large = take_piece(100 * kMiB);
  CHECK(first.slab == second.slab);
  CHECK(second.data == first.data + kMiB);
  CHECK(large.slab != first.slab);
  std::memset(large.data + 100 * kMiB - 64, 7, 64);
}

TEST(a_slab_ends_with_its_last_piece) {
  const std::weak_ptr<Slab> slab = take_piece(kMiB).slab;
  CHECK(slab.expired());
}

TEST(too_much_is_refused) {
  bool refused = false;
  try {
    take_piece(std::numeric_limits<std::size_t>::max() - 10);
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  CHECK(refused);
}

CHECK_MAIN()
