#include "int8_conv2d_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

void check_exact(const Problem& p) {
  const check::Context context(p.s.name());
  const Floats expected = p.expected();
  for_each_int8([&](const Int8Table& table) { check_results(p, expected, Run(table, p)); });
}

}  // namespace

TEST(kernels_strides_paddings_and_dilations) {
  check_exact(Problem({7, 9, 5, 19}));
  check_exact(Problem({7, 9, 16, 40, 1, 1, 1, 0}));
  check_exact(Problem({8, 11, 4, 17, 1, 1, 2, 0}));
  check_exact(Problem({13, 17, 3, 35, 7, 7, 2, 3}));
  check_exact(Problem({9, 10, 6, 20, 3, 3, 2, 1}));
  check_exact(Problem({9, 10, 6, 20, 3, 3, 1, 2, 2}));
  check_exact(Problem({9, 10, 3, 20, 3, 2, 2, 1, 3}));
  check_exact(Problem({6, 8, 2, 9, 2, 5, 3, 4}));
}

TEST(windows_that_differ_between_the_axes) {
  check_exact(Problem({1, 16, 12, 37, 1, 5, 1, 0, 1, 1, 0, 2, 2}));
  check_exact(Problem({9, 8, 7, 9, 3, 3, 2, 0, 1, 2, 1, 0, 1}));
  check_exact(Problem({9, 8, 7, 9, 2, 4, 1, 1, 2, 3, 2, 0, 3}));
}

TEST(odd_images) {
  check_exact(Problem({1, 40, 8, 16}));
  check_exact(Problem({40, 1, 8, 16}));
  check_exact(Problem({1, 1, 1, 1}));
  check_exact(Problem({5, 30, 65, 33}));
}

TEST(an_image_larger_than_one_block) { check_exact(Problem({40, 60, 64, 8, 3, 3, 1, 1})); }

TEST(channel_counts_around_groups) {
  for (const int64_t channels : {1, 2, 3, 4, 5, 7, 8, 9, 17}) check_exact(Problem({4, 6, channels, 18}));
}

TEST(the_largest_values_everywhere) {
  Problem p({6, 7, 33, 20});
  for (float& x : p.x) x = x < 0 ? -1.0f : 1.0f;
  for (size_t i = 0; i < p.w.size(); ++i) p.w[i] = i % 3 ? 2.0f : -2.0f;
  check_exact(p);
  std::fill(p.x.begin(), p.x.end(), -1.0f);
  std::fill(p.w.begin(), p.w.end(), -5.0f);
  check_exact(p);
}

TEST(an_image_of_zeros_gives_the_bias) {
  Problem p({4, 5, 3, 18});
  std::fill(p.x.begin(), p.x.end(), 0.0f);
  check_exact(p);
}

TEST(bits_do_not_depend_on_the_partition) {
  const Problem p({9, 13, 10, 70, 3, 3, 1, 1});
  for_each_int8([&](const Int8Table& table) {
    Run whole(table, p);
    whole.whole();
    const int64_t pixels = p.s.out_h() * p.s.out_w(), panels = int8_panels(table, p.s.out_c);
    for (const int64_t step : {1, 5, 13, 40}) {
      Run parts(table, p);
      for (int64_t i = 0; i < pixels; i += step) {
        for (int64_t q = 0; q < panels; ++q) parts.part({i, std::min(pixels, i + step)}, {q, q + 1});
      }
      CHECK(same_bits(whole.y.copy(), parts.y.copy()));
    }
    for (const int64_t rows : {1, 14, 1000}) {
      Problem blocks = p;
      blocks.block_rows = rows;
      Run other(table, blocks);
      CHECK(same_bits(whole.y.copy(), other.whole().y.copy()));
    }
  });
}

CHECK_MAIN()
