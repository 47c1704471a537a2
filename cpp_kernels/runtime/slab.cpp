#include "runtime/slab.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

#include "runtime/buffer.hpp"

namespace vla {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSharedSlab = std::size_t{64} << 20;
// Larger ones would leave too much of a slab's end unused.
constexpr std::size_t kLargestShared = kSharedSlab / 8;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

// 4 KiB on x86-64, up to 64 KiB on AArch64.
std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

std::byte* round_up(std::byte* data, std::size_t unit) {
  return data + (unit - reinterpret_cast<std::uintptr_t>(data) % unit) % unit;
}

}  // namespace

Slab::Slab(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * kHugePage) throw std::bad_alloc();
  // The end is no large page, all of which would be resident for what it begins with.
  bytes_ = round_up(bytes, page_size());
  // Reserved with room to begin at a large page; what is over goes back at once.
  const std::size_t reserved = bytes_ + kHugePage;
  void* start = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(start);
  data_ = round_up(begin, kHugePage);
  if (data_ > begin) munmap(begin, static_cast<std::size_t>(data_ - begin));
  const std::size_t rest = kHugePage - static_cast<std::size_t>(data_ - begin);
  if (rest > 0) munmap(data_ + bytes_, rest);
#ifdef MADV_HUGEPAGE
  madvise(data_, bytes_, MADV_HUGEPAGE);  // advice only: may be refused
#endif
}

Slab::~Slab() { munmap(data_, bytes_); }

std::byte* Slab::take(std::size_t bytes) {
  if (bytes > bytes_ - used_) return nullptr;
  std::byte* piece = data_ + used_;
  used_ = std::min(bytes_, round_up(used_ + bytes, kAlignment));
  return piece;
}

void Slab::discard(std::byte* piece, std::size_t bytes) {
  const std::size_t page = page_size();
  std::byte* begin = round_up(piece, page);
  std::byte* end = piece + bytes;
  if (end - begin < static_cast<std::ptrdiff_t>(page)) return;
  madvise(begin, static_cast<std::size_t>(end - begin) / page * page, MADV_DONTNEED);
}

Piece take_piece(std::size_t bytes) {
  if (bytes > kLargestShared) {
    auto own = std::make_shared<Slab>(bytes);
    std::byte* data = own->take(bytes);
    return {std::move(own), data};
  }
  static std::mutex mutex;
  static std::weak_ptr<Slab> shared;
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Slab> slab = shared.lock();
  std::byte* data = slab ? slab->take(bytes) : nullptr;
  if (data == nullptr) {
    slab = std::make_shared<Slab>(kSharedSlab);
    shared = slab;
    data = slab->take(bytes);
  }
  return {std::move(slab), data};
}

}  // namespace vla
