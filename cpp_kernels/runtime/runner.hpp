// What runs the chunks of a job: a whole team of threads, or a part of one.
#pragma once

#include <cstdint>
#include <type_traits>

namespace vla {

class Runner {
 public:
  // Calls body(chunk, thread) once for each chunk in [0, chunks), on the threads of the runner, and returns when all are
  // done; threads are numbered from 0. One caller at a time. The body must not throw.
  template <typename Body>
  void run(int64_t chunks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    static_assert(std::is_nothrow_invocable_v<Plain&, int64_t, int>, "declare the body noexcept");
    run_job(chunks, [](void* context, int64_t chunk, int thread) noexcept {
      (*static_cast<Plain*>(context))(chunk, thread);
    }, const_cast<void*>(static_cast<const void*>(&body)));
  }

 protected:
  using Call = void (*)(void* context, int64_t chunk, int thread) noexcept;

  Runner() = default;
  ~Runner() = default;
  Runner(const Runner&) = default;
  Runner& operator=(const Runner&) = default;

  virtual void run_job(int64_t chunks, Call call, void* context) = 0;
};

}  // namespace vla
