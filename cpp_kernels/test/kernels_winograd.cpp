#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

constexpr int64_t kSides[] = {2, 4};

struct Problem {
  int64_t h, w, in_c, out_c, padding;

  int64_t out_h() const { return h + 2 * padding - 2; }
  int64_t out_w() const { return w + 2 * padding - 2; }
  int64_t pixels() const { return out_h() * out_w(); }
  int64_t tiles(int64_t side) const { return ((out_h() + side - 1) / side) * ((out_w() + side - 1) / side); }
  std::string name() const {
    std::string text;
    for (const int64_t v : {h, w, in_c, out_c, padding}) text += std::to_string(v) + " ";
    return text;
  }
};

// Values as they are in a network: activations that are mostly positive, weights that keep their variance.
struct Case {
  Problem p;
  Floats x, w, bias, residual, gamma, beta;
  Epilogue epilogue;

  explicit Case(const Problem& problem) : p(problem) {
    Random random(23);
    x = random.floats(p.h * p.w * p.in_c, -0.5f, 1.5f);
    const float bound = std::sqrt(6.0f / static_cast<float>(9 * p.in_c));
    w = random.floats(p.out_c * 9 * p.in_c, -bound, bound);
    bias = random.floats(p.out_c);
    residual = random.floats(p.pixels() * (p.out_c + 1));
    gamma = random.floats(p.out_c);
    beta = random.floats(p.out_c);
  }
  void use(Activation activation, bool with_operands) {
    epilogue = {};
    epilogue.activation = activation;
    if (!with_operands) return;
    epilogue.bias = bias.data();
    epilogue.residual = residual.data();
    epilogue.residual_ld = p.out_c + 1;
    epilogue.gamma = gamma.data();
    epilogue.beta = beta.data();
  }
  double product(int64_t oy, int64_t ox, int64_t oc) const {
    double sum = 0;
    for (int64_t fy = 0; fy < 3; ++fy) {
      for (int64_t fx = 0; fx < 3; ++fx) {
        const int64_t y = oy - p.padding + fy, xx = ox - p.padding + fx;
        if (y < 0 || y >= p.h || xx < 0 || xx >= p.w) continue;
        const float* pixel = x.data() + (y * p.w + xx) * p.in_c;
        const float* filter = w.data() + ((oc * 3 + fy) * 3 + fx) * p.in_c;
        for (int64_t c = 0; c < p.in_c; ++c) sum += static_cast<double>(pixel[c]) * filter[c];
      }
    }
    return sum;
  }
  double expected(int64_t oy, int64_t ox, int64_t oc) const {
    return vla::test::epilogue(product(oy, ox, oc), epilogue, oy * p.out_w() + ox, oc);
  }
  Conv2dArgs args(const float* packed, Matrix& y) const {
    Conv2dArgs a;
    a.x = x.data();
    a.in_h = p.h;
    a.in_w = p.w;
    a.in_c = p.in_c;
    a.packed = packed;
    a.y = y.data();
    a.y_ld = y.ld();
    a.out_h = p.out_h();
    a.out_w = p.out_w();
    a.out_c = p.out_c;
    a.kernel_h = a.kernel_w = 3;
    a.padding = p.padding;
    a.epilogue = epilogue;
    return a;
  }
  Matrix result() const { return Matrix(p.pixels(), p.out_c, p.out_c + 3); }
};

Floats packed(const KernelTable& table, int64_t side, const Case& c, int64_t step) {
  Floats out(static_cast<size_t>(table.winograd_packed_size(side, c.p.out_c, c.p.in_c)), -777.25f);
  const int64_t all = panels(table, c.p.out_c);
  for (int64_t p = 0; p < all; p += step) {
    table.winograd_pack(side, c.w.data(), c.p.out_c, c.p.in_c, out.data(), {p, std::min(all, p + step)});
  }
  return out;
}

// The scratch memory comes with whatever was in it, here with what would be seen.
void run(const KernelTable& table, int64_t side, const Conv2dArgs& args, Range tiles, Range range) {
  Floats scratch(static_cast<size_t>(table.winograd_scratch(side, args)), std::nanf(""));
  table.winograd(side, args, tiles, range, scratch.data());
}

// Of sums whose terms have a variance of about one: measured, the largest errors are half of this.
double tolerance(int64_t side) { return side == 2 ? 4e-6 : 1.5e-5; }

template <typename F>
void for_each_side(F body) {
  for (const int64_t side : kSides) {
    const check::Context context("side " + std::to_string(side));
    body(side);
  }
}

void check_case(const Case& c) {
  const check::Context context(c.p.name());
  Floats expected;
  for (int64_t i = 0; i < c.p.pixels(); ++i) {
    for (int64_t oc = 0; oc < c.p.out_c; ++oc) {
      expected.push_back(static_cast<float>(c.expected(i / c.p.out_w(), i % c.p.out_w(), oc)));
    }
  }
  for_each_isa([&](const KernelTable& table) {
    for_each_side([&](int64_t side) {
      const Floats filters = packed(table, side, c, 2);
      Matrix y = c.result();
      run(table, side, c.args(filters.data(), y), {0, c.p.tiles(side)}, {0, panels(table, c.p.out_c)});
      CHECK(y.intact());
      for (int64_t i = 0; i < c.p.pixels(); ++i) {
        for (int64_t oc = 0; oc < c.p.out_c; ++oc) {
          CHECK_CLOSE(y.at(i, oc), expected[static_cast<size_t>(i * c.p.out_c + oc)], tolerance(side));
        }
      }
    });
  });
}

void check_problem(const Problem& p) {
  Case c(p);
  c.use(Activation::kRelu, true);
  check_case(c);
}

}  // namespace

TEST(whole_tiles) {
  check_problem({8, 12, 16, 32, 1});
  check_problem({10, 14, 32, 64, 0});
}

TEST(sizes_that_tiles_do_not_divide) {
  for (const int64_t h : {5, 6, 7}) {
    for (const int64_t w : {9, 10, 11}) {
      check_problem({h, w, 8, 16, 1});
      check_problem({h, w, 8, 16, 0});
    }
  }
}

TEST(small_maps) {
  check_problem({1, 1, 9, 20, 1});
  check_problem({1, 19, 16, 16, 1});
  check_problem({17, 1, 16, 16, 1});
  check_problem({3, 3, 16, 16, 0});
  check_problem({3, 20, 5, 7, 0});
}

TEST(wide_padding) { check_problem({4, 5, 8, 8, 2}); }

TEST(channels_that_vectors_do_not_divide) {
  for (const int64_t in_c : {1, 3, 17, 30}) {
    for (const int64_t out_c : {1, 5, 33, 47}) check_problem({6, 7, in_c, out_c, 1});
  }
}

TEST(channels_beyond_one_depth_block) {
  check_problem({5, 9, 193, 35, 1});
  check_problem({4, 5, 512, 40, 1});
}

TEST(more_tiles_than_a_block) {
  check_problem({37, 70, 24, 40, 1});
  check_problem({30, 29, 200, 8, 1});
}

TEST(epilogues) {
  for (const bool with_operands : {false, true}) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kGelu,
                                        Activation::kGeluTanh, Activation::kSilu, Activation::kTanh}) {
      Case c({7, 6, 12, 21, 1});
      c.use(activation, with_operands);
      check_case(c);
    }
  }
}

TEST(nan_and_infinity_reach_the_output) {
  Case c({6, 6, 16, 16, 1});
  c.use(Activation::kRelu, false);
  c.x[0] = std::nanf("");
  for_each_isa([&](const KernelTable& table) {
    for_each_side([&](int64_t side) {
      const Floats filters = packed(table, side, c, 1);
      Matrix y = c.result();
      run(table, side, c.args(filters.data(), y), {0, c.p.tiles(side)}, {0, panels(table, c.p.out_c)});
      CHECK(std::isnan(y.at(0, 0)));
    });
  });
}

TEST(packing_by_parts_is_packing_at_once) {
  const Case c({3, 3, 19, 100, 1});
  for_each_isa([&](const KernelTable& table) {
    for_each_side([&](int64_t side) {
      CHECK(same_bits(packed(table, side, c, 1), packed(table, side, c, panels(table, c.p.out_c))));
    });
  });
}

TEST(bits_do_not_depend_on_the_partition) {
  Case c({23, 39, 40, 130, 1});
  c.use(Activation::kRelu, true);
  for_each_isa([&](const KernelTable& table) {
    for_each_side([&](int64_t side) {
      const Floats filters = packed(table, side, c, 1);
      const int64_t all = panels(table, c.p.out_c), tiles = c.p.tiles(side);
      Matrix whole = c.result();
      run(table, side, c.args(filters.data(), whole), {0, tiles}, {0, all});
      for (const int64_t step : {3, 13, 14, 47}) {
        Matrix parts = c.result();
        for (int64_t t = 0; t < tiles; t += step) {
          for (int64_t q = 0; q < all; q += 2) {
            run(table, side, c.args(filters.data(), parts), {t, std::min(tiles, t + step)}, {q, std::min(all, q + 2)});
          }
        }
        CHECK(same_bits(whole.copy(), parts.copy()));
      }
    });
  });
}

CHECK_MAIN()
