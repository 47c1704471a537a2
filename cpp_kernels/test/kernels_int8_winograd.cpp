#include "int8_conv2d_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

template <typename F>
void for_each_winograd(F body) {
  for_each_int8([&](const Int8Table& table) {
    if (table.winograd != nullptr) body(table);
  });
}

void check_exact(const Problem& p) {
  const check::Context context(p.s.name());
  const Floats expected = p.expected();
  for_each_winograd([&](const Int8Table& table) { check_results(p, expected, Run(table, p, true)); });
}

// The sign of a pixel for which a tile's transformed values are the largest: 4 d0 - 5 d2 + d4 and 4 d1 - 5 d3 + d5
// along both axes, of the image between its padding.
float steep(int64_t y, int64_t x) { return ((y + 1) % 4 < 2) == ((x + 1) % 4 < 2) ? 1.0f : -1.0f; }

}  // namespace

TEST(variants_with_products_of_16_bits_have_the_method) {
  for_each_int8([&](const Int8Table& table) {
    const bool wide = std::string(table.name) == "avx2" || std::string(table.name) == "avx512";
    CHECK((table.winograd != nullptr) == wide && (table.winograd_pack != nullptr) == wide);
  });
}

TEST(sizes_around_tiles) {
  for (const int64_t height : {1, 2, 3, 4, 5, 6, 7, 9}) {
    for (const int64_t width : {1, 3, 4, 5, 8, 11}) check_exact(Problem({height, width, 18, 19}));
  }
  check_exact(Problem({1, 70, 8, 16}));
  check_exact(Problem({70, 1, 8, 16}));
}

TEST(paddings) {
  check_exact(Problem({9, 7, 5, 19, 3, 3, 1, 0}));
  check_exact(Problem({3, 3, 5, 19, 3, 3, 1, 0}));
  check_exact(Problem({5, 6, 5, 19, 3, 3, 1, 2}));
  check_exact(Problem({6, 8, 7, 9, 3, 3, 1, 0, 1, 1, 2, 3, 1}));
}

TEST(channel_counts_around_vectors_and_parts) {
  for (const int64_t channels : {1, 2, 3, 15, 16, 17, 31, 33, 223, 224, 225, 226, 449, 700}) {
    check_exact(Problem({5, 6, channels, 18}));
  }
  for (const int64_t filters : {1, 7, 15, 16, 17, 32, 33, 65}) check_exact(Problem({5, 6, 20, filters}));
}

TEST(an_image_of_several_blocks) { check_exact(Problem({50, 37, 64, 20})); }

TEST(the_largest_values_everywhere) {
  for (const int64_t channels : {33, 224, 512}) {
    Problem p({9, 10, channels, 20});
    for (float& x : p.x) x = x < 0 ? -1.0f : 1.0f;
    for (float& w : p.w) w = w < 0 ? -2.0f : 2.0f;
    check_exact(p);
    std::fill(p.w.begin(), p.w.end(), -5.0f);
    check_exact(p);
    for (size_t i = 0; i < p.x.size(); ++i) {
      const auto pixel = static_cast<int64_t>(i) / channels;
      p.x[i] = steep(pixel / p.s.in_w, pixel % p.s.in_w);
    }
    check_exact(p);
    std::fill(p.x.begin(), p.x.end(), -1.0f);
    check_exact(p);
  }
}

TEST(the_most_channels_that_sums_can_take) {
  Problem p({3, 3, kInt8MaxDepth / 9, 1});
  std::fill(p.x.begin(), p.x.end(), 3.0f);
  std::fill(p.w.begin(), p.w.end(), -0.25f);
  check_exact(p);
}

TEST(an_image_of_zeros_gives_the_bias) {
  Problem p({4, 5, 3, 18});
  std::fill(p.x.begin(), p.x.end(), 0.0f);
  check_exact(p);
}

TEST(what_follows_the_sums_is_that_of_the_direct_method) {
  Problem p({6, 9, 40, 37});
  Random random(5);
  p.residual = random.floats(p.s.out_h() * p.s.out_w() * p.s.out_c);
  p.gamma = random.floats(p.s.out_c);
  p.activation = Activation::kGelu;
  for_each_winograd([&](const Int8Table& table) {
    Run direct(table, p), run(table, p, true);
    CHECK(same_bits(direct.whole().y.copy(), run.whole().y.copy()));
  });
}

TEST(bits_do_not_depend_on_the_partition) {
  const Problem p({22, 13, 260, 70});
  for_each_winograd([&](const Int8Table& table) {
    Run whole(table, p, true);
    whole.whole();
    const int64_t panels = int8_panels(table, p.s.out_c);
    for (const int64_t step : {1, 5, 13}) {
      Run parts(table, p, true);
      for (int64_t i = 0; i < parts.rows(); i += step) {
        for (int64_t q = 0; q < panels; ++q) parts.part({i, std::min(parts.rows(), i + step)}, {q, q + 1});
      }
      CHECK(same_bits(whole.y.copy(), parts.y.copy()));
    }
  });
}

CHECK_MAIN()
