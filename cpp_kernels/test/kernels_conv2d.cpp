#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

struct Problem {
  int64_t h, w, in_c, out_c, kernel_h, kernel_w, stride, padding, dilation;
  // Where they differ from those above: the stride to the right, and what is added to the padding of these sides.
  int64_t stride_w = stride;
  int64_t more_bottom = 0, more_left = 0, more_right = 0;

  int64_t left() const { return padding + more_left; }
  int64_t out_h() const {
    return (h + 2 * padding + more_bottom - dilation * (kernel_h - 1) - 1) / stride + 1;
  }
  int64_t out_w() const { return (w + left() + padding + more_right - dilation * (kernel_w - 1) - 1) / stride_w + 1; }
  int64_t k() const { return kernel_h * kernel_w * in_c; }
  std::string name() const {
    std::string text;
    for (const int64_t v : {h, w, in_c, out_c, kernel_h, kernel_w, stride, padding, dilation, stride_w, more_bottom,
                            more_left, more_right}) {
      text += std::to_string(v) + " ";
    }
    return text;
  }
};

struct Case {
  Problem p;
  Floats x, w, bias, residual, gamma, beta;
  Epilogue epilogue;

  explicit Case(const Problem& problem) : p(problem) {
    Random random(11);
    x = random.floats(p.h * p.w * p.in_c);
    w = random.floats(p.out_c * p.k());
    bias = random.floats(p.out_c);
    residual = random.floats(p.out_h() * p.out_w() * p.out_c);
    gamma = random.floats(p.out_c);
    beta = random.floats(p.out_c);
    epilogue.bias = bias.data();
    epilogue.residual = residual.data();
    epilogue.residual_ld = p.out_c;
    epilogue.activation = Activation::kRelu;
    epilogue.gamma = gamma.data();
    epilogue.beta = beta.data();
  }
  double expected(int64_t oy, int64_t ox, int64_t oc) const {
    double sum = 0;
    for (int64_t fy = 0; fy < p.kernel_h; ++fy) {
      for (int64_t fx = 0; fx < p.kernel_w; ++fx) {
        const int64_t y = oy * p.stride - p.padding + fy * p.dilation;
        const int64_t xx = ox * p.stride_w - p.left() + fx * p.dilation;
        if (y < 0 || y >= p.h || xx < 0 || xx >= p.w) continue;
        for (int64_t c = 0; c < p.in_c; ++c) {
          sum += static_cast<double>(x[static_cast<size_t>((y * p.w + xx) * p.in_c + c)]) *
                 w[static_cast<size_t>(((oc * p.kernel_h + fy) * p.kernel_w + fx) * p.in_c + c)];
        }
      }
    }
    return vla::test::epilogue(sum, epilogue, oy * p.out_w() + ox, oc);
  }
  Conv2dArgs args(const Floats& packed_w, Matrix& y) const {
    Conv2dArgs a;
    a.x = x.data();
    a.in_h = p.h;
    a.in_w = p.w;
    a.in_c = p.in_c;
    a.packed = packed_w.data();
    a.y = y.data();
    a.y_ld = y.ld();
    a.out_h = p.out_h();
    a.out_w = p.out_w();
    a.out_c = p.out_c;
    a.kernel_h = p.kernel_h;
    a.kernel_w = p.kernel_w;
    a.stride_h = p.stride;
    a.stride_w = p.stride_w;
    a.pad_top = p.padding;
    a.pad_bottom = p.padding + p.more_bottom;
    a.pad_left = p.left();
    a.pad_right = p.padding + p.more_right;
    a.dilation = p.dilation;
    a.epilogue = epilogue;
    return a;
  }
  Matrix result() const { return Matrix(p.out_h() * p.out_w(), p.out_c, p.out_c + 2); }
};

void run(const KernelTable& table, const Conv2dArgs& args, Range rows, Range range) {
  Floats scratch(static_cast<size_t>(table.conv2d_scratch(args)));
  table.conv2d(args, rows, range, scratch.data());
}

// The convolution as a linear layer of its patches, gathered in two parts.
void run_flat(const KernelTable& table, const Conv2dArgs& args) {
  LinearArgs product;
  product.m = args.out_h * args.out_w;
  product.n = args.out_c;
  product.k = args.kernel_h * args.kernel_w * args.in_c;
  Floats patches(static_cast<size_t>(product.m * product.k));
  table.conv2d_patches(args, {product.m / 2, product.m}, patches.data());
  table.conv2d_patches(args, {0, product.m / 2}, patches.data());
  product.x = patches.data();
  product.x_ld = product.k;
  product.packed = args.packed;
  product.y = args.y;
  product.y_ld = args.y_ld;
  product.epilogue = args.epilogue;
  table.linear(product, {0, product.m}, {0, panels(table, product.n)});
}

void check_result(const Case& c, Matrix& y) {
  const Problem& p = c.p;
  CHECK(y.intact());
  const double tolerance = product_tolerance(p.k());
  for (int64_t i = 0; i < p.out_h() * p.out_w(); ++i) {
    for (int64_t oc = 0; oc < p.out_c; ++oc) {
      CHECK_CLOSE(y.at(i, oc), c.expected(i / p.out_w(), i % p.out_w(), oc), tolerance);
    }
  }
}

void check_problem(const Problem& p) {
  const check::Context context(p.name());
  const Case c(p);
  for_each_isa([&](const KernelTable& table) {
    const Floats packed_w = packed(table, c.w, p.out_c, p.k());
    Matrix y = c.result();
    run(table, c.args(packed_w, y), {0, p.out_h() * p.out_w()}, {0, panels(table, p.out_c)});
    check_result(c, y);
    Matrix flat = c.result();
    run_flat(table, c.args(packed_w, flat));
    check_result(c, flat);
  });
}

}  // namespace

TEST(three_by_three) {
  check_problem({8, 9, 16, 32, 3, 3, 1, 1, 1});
  check_problem({7, 17, 5, 37, 3, 3, 1, 1, 1});
  check_problem({7, 17, 5, 3, 3, 3, 1, 0, 1});
}

TEST(strided) {
  check_problem({9, 13, 8, 16, 3, 3, 2, 1, 1});
  check_problem({10, 12, 8, 16, 3, 3, 2, 1, 1});
  check_problem({9, 31, 4, 33, 1, 1, 2, 0, 1});
  check_problem({11, 11, 3, 8, 5, 5, 3, 2, 1});
}

TEST(stem) { check_problem({23, 38, 3, 64, 7, 7, 2, 3, 1}); }

TEST(dilated) {
  check_problem({11, 14, 6, 17, 3, 3, 1, 2, 2});
  check_problem({13, 13, 40, 8, 3, 3, 2, 3, 3});
  check_problem({9, 9, 300, 4, 2, 2, 1, 1, 2});
}

TEST(filters_that_are_not_square) {
  check_problem({9, 8, 7, 9, 1, 5, 1, 2, 1});
  check_problem({9, 8, 7, 9, 4, 1, 1, 1, 1});
}

TEST(windows_that_differ_between_the_axes) {
  check_problem({1, 16, 40, 37, 1, 5, 1, 0, 1, 1, 0, 2, 2});   // along one axis only
  check_problem({1, 16, 40, 37, 1, 3, 1, 0, 1, 2, 0, 1, 1});
  check_problem({9, 8, 7, 9, 3, 1, 2, 1, 1, 1, -1, -1, -1});
  check_problem({9, 8, 7, 9, 3, 3, 2, 0, 1, 2, 1, 0, 1});      // padded below and to the right
  check_problem({9, 8, 7, 9, 2, 4, 1, 1, 2, 3, 2, 0, 3});
  check_problem({12, 8, 3, 20, 4, 4, 4, 0, 1});
}

TEST(channels_beyond_one_depth_block) {
  check_problem({5, 6, 100, 16, 3, 3, 1, 1, 1});
  check_problem({4, 5, 300, 35, 3, 3, 1, 1, 1});
  check_problem({4, 5, 261, 5, 1, 1, 1, 0, 1});
}

TEST(one_pixel_and_one_channel) {
  check_problem({1, 1, 1, 1, 1, 1, 1, 0, 1});
  check_problem({1, 1, 9, 20, 3, 3, 1, 1, 1});
  check_problem({2, 40, 1, 1, 2, 2, 1, 1, 1});
}

TEST(images_taller_than_one_strip) {
  check_problem({40, 41, 64, 4, 3, 3, 1, 1, 1});
  check_problem({12, 1400, 6, 3, 3, 3, 2, 1, 1});  // a single output row fills the strip
}

TEST(bits_do_not_depend_on_the_partition) {
  const Problem p{29, 37, 40, 70, 3, 3, 1, 1, 1};
  const Case c(p);
  const int64_t pixels = p.out_h() * p.out_w();
  for_each_isa([&](const KernelTable& table) {
    const Floats packed_w = packed(table, c.w, p.out_c, p.k());
    const int64_t all = panels(table, p.out_c);
    Matrix whole = c.result();
    run(table, c.args(packed_w, whole), {0, pixels}, {0, all});
    for (const int64_t step : {5, 37, 100, 537}) {
      Matrix parts = c.result();
      for (int64_t r = 0; r < pixels; r += step) {
        for (int64_t q = 0; q < all; q += 2) {
          run(table, c.args(packed_w, parts), {r, std::min(pixels, r + step)}, {q, std::min(all, q + 2)});
        }
      }
      CHECK(same_bits(whole.copy(), parts.copy()));
    }
  });
}

// A tile adds up a filter of at most 128 values in one go, whichever way its patch is read.
TEST(patches_of_one_stretch_have_the_bits_of_the_direct_method) {
  for (const Problem& p : {Problem{9, 14, 12, 40, 3, 3, 1, 1, 1}, Problem{9, 14, 12, 40, 3, 3, 2, 1, 1}}) {
    const Case c(p);
    for_each_isa([&](const KernelTable& table) {
      const Floats packed_w = packed(table, c.w, p.out_c, p.k());
      Matrix direct = c.result(), flat = c.result();
      run(table, c.args(packed_w, direct), {0, p.out_h() * p.out_w()}, {0, panels(table, p.out_c)});
      run_flat(table, c.args(packed_w, flat));
      CHECK(same_bits(direct.copy(), flat.copy()));
    });
  }
}

CHECK_MAIN()
