#include "runtime/buffer.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <limits>
#include <new>

namespace vla {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  // Weights and activations are walked with large strides, so large buffers get large pages where the
  // kernel grants them; small ones would only waste memory.
  const bool large = bytes >= 2 * kHugePage;
  const std::size_t alignment = large ? kHugePage : kAlignment;
  if (bytes > std::numeric_limits<std::size_t>::max() - alignment) throw std::bad_alloc();
  void* data = nullptr;
  if (posix_memalign(&data, alignment, bytes) != 0) throw std::bad_alloc();
  data_.reset(static_cast<std::byte*>(data));
#ifdef MADV_HUGEPAGE
  if (large) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice only: may be refused
#endif
}

void AlignedBuffer::Release::operator()(std::byte* data) const { std::free(data); }

}  // namespace vla
