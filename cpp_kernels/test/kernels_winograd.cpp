#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

constexpr WinogradForm kForms[] = {{2, 3, 1}, {4, 3, 1}, {2, 3, 2}, {4, 3, 2}, {4, 7, 2}};

std::string name_of(const WinogradForm& form) {
  const std::string kernel = std::to_string(form.kernel);
  return kernel + "x" + kernel + " stride " + std::to_string(form.stride) + " side " + std::to_string(form.side);
}

// The padding is that of a 3x3 filter; a 7x7 one gets two more.
struct Shape {
  int64_t h, w, in_c, out_c, padding;
};

struct Problem {
  Shape shape;
  WinogradForm form;
  int64_t h = shape.h, w = shape.w, in_c = shape.in_c, out_c = shape.out_c;
  int64_t kernel = form.kernel, padding = shape.padding + (form.kernel - 3) / 2;

  int64_t out(int64_t size) const { return (size + 2 * padding - kernel) / form.stride + 1; }
  bool exists() const { return h + 2 * padding >= kernel && w + 2 * padding >= kernel; }
  int64_t out_h() const { return out(h); }
  int64_t out_w() const { return out(w); }
  int64_t pixels() const { return out_h() * out_w(); }
  int64_t tiles() const {
    const int64_t width = form.tile_width();
    return ((out_h() + form.side - 1) / form.side) * ((out_w() + width - 1) / width);
  }
  std::string name() const {
    std::string text = name_of(form) + ":";
    for (const int64_t v : {h, w, in_c, out_c, padding}) text += " " + std::to_string(v);
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
    const float bound = std::sqrt(6.0f / static_cast<float>(p.kernel * p.kernel * p.in_c));
    w = random.floats(p.out_c * p.kernel * p.kernel * p.in_c, -bound, bound);
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
    for (int64_t fy = 0; fy < p.kernel; ++fy) {
      for (int64_t fx = 0; fx < p.kernel; ++fx) {
        const int64_t y = oy * p.form.stride - p.padding + fy, xx = ox * p.form.stride - p.padding + fx;
        if (y < 0 || y >= p.h || xx < 0 || xx >= p.w) continue;
        const float* pixel = x.data() + (y * p.w + xx) * p.in_c;
        const float* filter = w.data() + ((oc * p.kernel + fy) * p.kernel + fx) * p.in_c;
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
    a.kernel_h = a.kernel_w = p.kernel;
    a.stride_h = a.stride_w = p.form.stride;
    a.pad_top = a.pad_bottom = a.pad_left = a.pad_right = p.padding;
    a.epilogue = epilogue;
    return a;
  }
  Matrix result() const { return Matrix(p.pixels(), p.out_c, p.out_c + 3); }
};

Floats packed(const KernelTable& table, const Case& c, int64_t step) {
  const WinogradForm& form = c.p.form;
  Floats out(static_cast<size_t>(table.winograd_packed_size(form, c.p.out_c, c.p.in_c)), -777.25f);
  const int64_t all = panels(table, c.p.out_c);
  for (int64_t p = 0; p < all; p += step) {
    table.winograd_pack(form, c.w.data(), c.p.out_c, c.p.in_c, out.data(), {p, std::min(all, p + step)});
  }
  return out;
}

// The scratch memory comes with whatever was in it, here with what would be seen.
void run(const KernelTable& table, const WinogradForm& form, const Conv2dArgs& args, Range tiles, Range range) {
  Floats scratch(static_cast<size_t>(table.winograd_scratch(form, args)), std::nanf(""));
  table.winograd(form, args, tiles, range, scratch.data());
}

// Of sums whose terms have a variance of about one: measured, the largest errors are half of this.
double tolerance(const WinogradForm& form) { return form.side == 2 ? 4e-6 : form.stride == 2 && form.kernel == 3 ? 6e-6 : 1.5e-5; }

// body(problem) for every form of the method that can have this shape.
template <typename F>
void for_each_form(const Shape& shape, F body) {
  for (const WinogradForm& form : kForms) {
    const Problem problem{shape, form};
    const check::Context context(problem.name());
    if (problem.exists()) body(problem);
  }
}

void check_case(const Case& c) {
  Floats expected;
  for (int64_t i = 0; i < c.p.pixels(); ++i) {
    for (int64_t oc = 0; oc < c.p.out_c; ++oc) {
      expected.push_back(static_cast<float>(c.expected(i / c.p.out_w(), i % c.p.out_w(), oc)));
    }
  }
  for_each_isa([&](const KernelTable& table) {
    const Floats filters = packed(table, c, 2);
    Matrix y = c.result();
    run(table, c.p.form, c.args(filters.data(), y), {0, c.p.tiles()}, {0, panels(table, c.p.out_c)});
    CHECK(y.intact());
    for (int64_t i = 0; i < c.p.pixels(); ++i) {
      for (int64_t oc = 0; oc < c.p.out_c; ++oc) {
        CHECK_CLOSE(y.at(i, oc), expected[static_cast<size_t>(i * c.p.out_c + oc)], tolerance(c.p.form));
      }
    }
  });
}

void check_shape(const Shape& shape) {
  for_each_form(shape, [](const Problem& problem) {
    Case c(problem);
    c.use(Activation::kRelu, true);
    check_case(c);
  });
}

}  // namespace

TEST(whole_tiles) {
  check_shape({8, 12, 16, 32, 1});
  check_shape({10, 14, 32, 64, 0});
}

TEST(sizes_that_tiles_do_not_divide) {
  for (const int64_t h : {5, 6, 7}) {
    for (const int64_t w : {9, 10, 11}) {
      check_shape({h, w, 8, 16, 1});
      check_shape({h, w, 8, 16, 0});
    }
  }
}

TEST(small_maps) {
  check_shape({1, 1, 9, 20, 1});
  check_shape({1, 19, 16, 16, 1});
  check_shape({17, 1, 16, 16, 1});
  check_shape({3, 3, 16, 16, 0});
  check_shape({3, 20, 5, 7, 0});
}

TEST(wide_padding) { check_shape({4, 5, 8, 8, 2}); }

TEST(channels_that_vectors_do_not_divide) {
  for (const int64_t in_c : {1, 3, 17, 30}) {
    for (const int64_t out_c : {1, 5, 33, 47}) check_shape({6, 7, in_c, out_c, 1});
  }
}

TEST(channels_beyond_one_depth_block) {
  check_shape({5, 9, 193, 35, 1});
  check_shape({4, 5, 512, 40, 1});
}

TEST(more_tiles_than_a_block) {
  check_shape({37, 70, 24, 40, 1});
  check_shape({30, 29, 200, 8, 1});
}

TEST(epilogues) {
  for (const bool with_operands : {false, true}) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kGelu,
                                        Activation::kGeluTanh, Activation::kSilu, Activation::kTanh}) {
      for_each_form({7, 6, 12, 21, 1}, [&](const Problem& problem) {
        Case c(problem);
        c.use(activation, with_operands);
        check_case(c);
      });
    }
  }
}

TEST(nan_reaches_the_output) {
  for_each_form({6, 6, 16, 16, 1}, [](const Problem& problem) {
    Case c(problem);
    c.use(Activation::kRelu, false);
    c.x[0] = std::nanf("");
    for_each_isa([&](const KernelTable& table) {
      const Floats filters = packed(table, c, 1);
      Matrix y = c.result();
      run(table, problem.form, c.args(filters.data(), y), {0, problem.tiles()}, {0, panels(table, problem.out_c)});
      CHECK(std::isnan(y.at(0, 0)));
    });
  });
}

TEST(packing_by_parts_is_packing_at_once) {
  for_each_form({3, 3, 19, 100, 1}, [](const Problem& problem) {
    const Case c(problem);
    for_each_isa([&](const KernelTable& table) {
      CHECK(same_bits(packed(table, c, 1), packed(table, c, panels(table, c.p.out_c))));
    });
  });
}

TEST(bits_do_not_depend_on_the_partition) {
  for_each_form({23, 39, 40, 130, 1}, [](const Problem& problem) {
    Case c(problem);
    c.use(Activation::kRelu, true);
    for_each_isa([&](const KernelTable& table) {
      const Floats filters = packed(table, c, 1);
      const int64_t all = panels(table, c.p.out_c), tiles = c.p.tiles();
      Matrix whole = c.result();
      run(table, problem.form, c.args(filters.data(), whole), {0, tiles}, {0, all});
      for (const int64_t step : {3, 13, 14, 47}) {
        Matrix parts = c.result();
        const Conv2dArgs args = c.args(filters.data(), parts);
        for (int64_t t = 0; t < tiles; t += step) {
          for (int64_t q = 0; q < all; q += 2) {
            run(table, problem.form, args, {t, std::min(tiles, t + step)}, {q, std::min(all, q + 2)});
          }
        }
        CHECK(same_bits(whole.copy(), parts.copy()));
      }
    });
  });
}

TEST(forms_that_do_not_exist) {
  for (const WinogradForm& form : kForms) CHECK(form.exists());
  for (const WinogradForm& form : {WinogradForm{}, WinogradForm{3}, WinogradForm{2, 5}, WinogradForm{4, 3, 3},
                                   WinogradForm{2, 7, 2}, WinogradForm{4, 7, 1}}) {
    CHECK(!form.exists());
  }
}

CHECK_MAIN()
