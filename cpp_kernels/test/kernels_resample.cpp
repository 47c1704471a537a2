#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

constexpr int64_t kGuard = 64;
constexpr uint8_t kMarker = 0xA5;

struct Problem {
  int64_t outer, in, inner, out, taps;
};

// Weights of up to four neighbours, so that sums fall below 0 and beyond 255, but stay within 32 bits.
std::vector<int32_t> shares(int64_t count, Random& random) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<int32_t>(random.uniform(-0.2f, 0.48f) * static_cast<float>(1 << ResampleArgs::kBits)));
  }
  return values;
}

void check_problem(const Problem& p) {
  const check::Context context(std::to_string(p.outer) + "x" + std::to_string(p.in) + "x" + std::to_string(p.inner));
  Random random(11);
  std::vector<uint8_t> x;
  for (int64_t i = 0; i < p.outer * p.in * p.inner; ++i) x.push_back(static_cast<uint8_t>(random.uniform(0, 255.9f)));
  std::vector<int32_t> first;
  for (int64_t i = 0; i < p.out; ++i) first.push_back(static_cast<int32_t>(i * (p.in - p.taps) / p.out));
  const std::vector<int32_t> weights = shares(p.out * p.taps, random);
  const auto expected = [&](int64_t line, int64_t i) {
    const int64_t place = line % p.out;
    double sum = 0;
    for (int64_t t = 0; t < p.taps; ++t) {
      const int64_t at = line / p.out * p.in + first[static_cast<size_t>(place)] + t;
      sum += static_cast<double>(weights[static_cast<size_t>(place * p.taps + t)]) *
             static_cast<double>(x[static_cast<size_t>(at * p.inner + i)]);
    }
    return std::clamp(std::floor(sum / static_cast<double>(1 << ResampleArgs::kBits) + 0.5), 0.0, 255.0);
  };
  for_each_isa([&](const KernelTable& table) {
    const int64_t lines = p.outer * p.out;
    std::vector<uint8_t> y(static_cast<size_t>(lines * p.inner + kGuard), kMarker);
    const ResampleArgs a{x.data(), p.outer, p.in, p.inner, first.data(), weights.data(), p.taps, y.data(), p.out};
    CHECK(a.lines() == lines);
    table.resample(a, {0, lines / 3});
    table.resample(a, {lines / 3, lines});
    for (int64_t line = 0; line < lines; ++line) {
      for (int64_t i = 0; i < p.inner; ++i) {
        CHECK(static_cast<double>(y[static_cast<size_t>(line * p.inner + i)]) == expected(line, i));
      }
    }
    CHECK(std::all_of(y.end() - kGuard, y.end(), [](uint8_t value) { return value == kMarker; }));
  });
}

}  // namespace

TEST(along_rows) { check_problem({7, 12, 3, 5, 4}); }
TEST(down_columns) { check_problem({1, 9, 51, 14, 3}); }
TEST(lines_longer_than_a_block) { check_problem({1, 5, 700, 3, 2}); }
TEST(one_pixel) { check_problem({2, 1, 3, 4, 1}); }

CHECK_MAIN()
