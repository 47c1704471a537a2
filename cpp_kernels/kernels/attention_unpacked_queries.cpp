#include "kernels/attention_unpacked.hpp"
#include "kernels/softmax.hpp"

namespace vla::VLA_ISA {
namespace {

// The compiler is not to know how a pointer was made: where it does, GCC keeps the distances of rows in vector registers.
VLA_INLINE const float* opaque(const float* p) {
  __asm__("" : "+r"(p));
  return p;
}

// to[c][i] = from[i][c] * scale for a vector of rows i; those past the last are zero.
__attribute__((noinline)) void take_vector(const float* from, int64_t from_ld, int64_t dim, Vec scale, float* to) {
  constexpr int64_t kWidth = Vec::kWidth;
  const float* fours[kWidth / 4];  // of rows
  for (int64_t i = 0; i < kWidth / 4; ++i) fours[i] = opaque(from + 4 * i * from_ld);
  for (int64_t c = 0; c < dim; c += kWidth, to += kWidth * kWidth) {
    transpose([&](int i) { return load(fours[i / 4] + i % 4 * from_ld + c) * scale; }, to, kWidth);
  }
}
__attribute__((noinline)) void take_last_vector(const float* from, int64_t from_ld, int64_t rows, int64_t dim, Vec scale,
                                                float* to) {
  constexpr int64_t kWidth = Vec::kWidth;
  for (int64_t c = 0; c < dim; c += kWidth, to += kWidth * kWidth) {
    transpose([&](int i) { return i < rows ? load(from + i * from_ld + c) * scale : zero(); }, to, kWidth);
  }
}

}  // namespace

void scale_queries(const FewQueries& f) {
  const Vec scale = splat(f.a.scale * kLog2E);
  const int64_t dim = f.a.head_dim;
  for (int64_t i = 0; i < f.lanes; i += Vec::kWidth) {
    const int64_t rows = f.count() - i;
    if (rows >= Vec::kWidth) {
      take_vector(f.q(i), f.a.q_ld, dim, scale, f.in_lanes + i * dim);
    } else {
      take_last_vector(f.q(i), f.a.q_ld, rows, dim, scale, f.in_lanes + i * dim);
    }
  }
  for (int64_t i = 0; i < f.dots; ++i) {
    for (int64_t c = 0; c < dim; c += Vec::kWidth) store(f.for_dots + i * dim + c, load(f.q(f.lanes + i) + c) * scale);
  }
}

}  // namespace vla::VLA_ISA
