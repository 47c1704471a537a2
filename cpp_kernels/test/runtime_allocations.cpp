#include "runtime_allocations.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {

std::atomic<int64_t> count{0};

}  // namespace

int64_t allocations() { return count.load(); }

#ifdef VLA_SANITIZED  // the sanitizer has its own malloc

bool counts_allocations() { return false; }

#else

bool counts_allocations() { return true; }

// In place of the C library's own, which have these names besides.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t items, std::size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(items, bytes);
}
void* realloc(void* data, std::size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(data, bytes);
}
int posix_memalign(void** data, std::size_t alignment, std::size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  *data = __libc_memalign(alignment, bytes);
  return *data == nullptr ? ENOMEM : 0;
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
}

#endif
