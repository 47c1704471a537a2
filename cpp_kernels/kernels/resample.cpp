// Weighted sums of neighbouring pixels of 8 bits, in integers: every instruction set gives the same.
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

// Columns of a line whose sums are built up side by side.
constexpr int64_t kBlock = 256;

VLA_INLINE uint8_t rounded(int32_t sum) {
  const int32_t value = sum >> ResampleArgs::kBits;
  return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

}  // namespace

void resample(const ResampleArgs& r, Range lines) {
  constexpr int32_t kHalf = 1 << (ResampleArgs::kBits - 1);
  int32_t sums[kBlock];
  for (int64_t line = lines.begin; line < lines.end; ++line) {
    const int64_t place = line % r.out;
    const int32_t* weights = r.weights + place * r.taps;
    const uint8_t* from = r.x + (line / r.out * r.in + r.first[place]) * r.inner;
    uint8_t* to = r.y + line * r.inner;
    for (int64_t begin = 0; begin < r.inner; begin += kBlock) {
      const int64_t count = min_of(kBlock, r.inner - begin);
      for (int64_t i = 0; i < count; ++i) sums[i] = kHalf;
      for (int64_t tap = 0; tap < r.taps; ++tap) {
        const int32_t weight = weights[tap];
        const uint8_t* x = from + tap * r.inner + begin;
        for (int64_t i = 0; i < count; ++i) sums[i] += weight * x[i];
      }
      for (int64_t i = 0; i < count; ++i) to[begin + i] = rounded(sums[i]);
    }
  }
}

}  // namespace vla::VLA_ISA
