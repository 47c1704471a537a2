#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

struct Problem {
  int64_t in_h, in_w, channels, out_h, out_w;
};

struct Place {
  int64_t low, high;
  double share;

  Place(int64_t at, int64_t source, int64_t target) {
    const double centre =
        std::max(0.0, (static_cast<double>(at) + 0.5) * static_cast<double>(source) / static_cast<double>(target) - 0.5);
    low = static_cast<int64_t>(centre);
    high = std::min(low + 1, source - 1);
    share = centre - static_cast<double>(low);
  }
};

void check_problem(const Problem& p) {
  const check::Context context(std::to_string(p.in_h) + "x" + std::to_string(p.in_w) + "x" +
                               std::to_string(p.channels) + " to " + std::to_string(p.out_h) + "x" +
                               std::to_string(p.out_w));
  Random random(7);
  const Floats x = random.floats(p.in_h * p.in_w * p.channels);
  const auto at = [&](int64_t row, int64_t col, int64_t c) {
    return static_cast<double>(x[static_cast<size_t>((row * p.in_w + col) * p.channels + c)]);
  };
  for_each_isa([&](const KernelTable& table) {
    Matrix y(p.out_h * p.out_w, p.channels, p.channels + 2);
    const ResizeArgs a{x.data(), p.in_h, p.in_w, p.channels, y.data(), y.ld(), p.out_h, p.out_w};
    Floats scratch(static_cast<size_t>(p.in_w * p.channels));
    table.resize(a, {0, p.out_h / 2}, scratch.data());
    table.resize(a, {p.out_h / 2, p.out_h}, scratch.data());
    CHECK(y.intact());
    for (int64_t i = 0; i < p.out_h * p.out_w; ++i) {
      const Place down(i / p.out_w, p.in_h, p.out_h), right(i % p.out_w, p.in_w, p.out_w);
      for (int64_t c = 0; c < p.channels; ++c) {
        const double upper = at(down.low, right.low, c) * (1 - right.share) + at(down.low, right.high, c) * right.share;
        const double lower = at(down.high, right.low, c) * (1 - right.share) + at(down.high, right.high, c) * right.share;
        CHECK_CLOSE(y.at(i, c), upper * (1 - down.share) + lower * down.share, 4e-7);
      }
    }
  });
}

}  // namespace

TEST(larger_and_smaller) {
  for (const int64_t channels : {1, 3, 4, 8, 17, 33}) {
    check_problem({5, 7, channels, 13, 15});
    check_problem({11, 9, channels, 4, 5});
    check_problem({6, 10, channels, 12, 5});
  }
}
TEST(one_pixel_is_repeated) { check_problem({1, 1, 3, 4, 3}); }
TEST(to_one_pixel) { check_problem({4, 6, 5, 1, 1}); }

CHECK_MAIN()
