#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

struct Problem {
  int64_t rows, cols, groups;
  float offset = 0.0f;
  Activation activation = Activation::kNone;
};

struct Case {
  Problem p;
  int64_t x_ld;
  Floats x, weight, bias;

  explicit Case(const Problem& problem) : p(problem), x_ld(problem.cols + 3) {
    Random random(3);
    x = random.floats(p.rows * x_ld, p.offset - 1.0f, p.offset + 1.0f);
    weight = random.floats(p.cols);
    bias = random.floats(p.cols);
  }
  GroupNormArgs args(Matrix& y) const {
    GroupNormArgs a;
    a.x = x.data();
    a.x_ld = x_ld;
    a.weight = weight.data();
    a.bias = bias.data();
    a.y = y.data();
    a.y_ld = y.ld();
    a.rows = p.rows;
    a.cols = p.cols;
    a.groups = p.groups;
    a.eps = 1e-5f;
    a.activation = p.activation;
    return a;
  }
  Matrix result() const { return Matrix(p.rows, p.cols, p.cols + 2); }
};

// The pieces and rows in steps of this many.
void run(const KernelTable& table, const GroupNormArgs& a, int64_t step) {
  Floats moments(static_cast<size_t>(a.moments_size())), factors(static_cast<size_t>(a.factors_size()));
  for (int64_t i = 0; i < a.pieces(); i += step) {
    table.group_norm_moments(a, {i, std::min(a.pieces(), i + step)}, moments.data());
  }
  table.group_norm_factors(a, moments.data(), factors.data());
  for (int64_t i = 0; i < a.rows; i += step) {
    table.group_norm(a, {i, std::min(a.rows, i + step)}, factors.data());
  }
}

void check_group(const Case& c, int64_t group, Matrix& y) {
  const int64_t width = c.p.cols / c.p.groups, first = group * width;
  const auto at = [&](int64_t r, int64_t i) { return static_cast<double>(c.x[static_cast<size_t>(r * c.x_ld + i)]); };
  const double count = static_cast<double>(c.p.rows * width);
  double mean = 0, variance = 0;
  for (int64_t r = 0; r < c.p.rows; ++r) {
    for (int64_t i = first; i < first + width; ++i) mean += at(r, i) / count;
  }
  for (int64_t r = 0; r < c.p.rows; ++r) {
    for (int64_t i = first; i < first + width; ++i) variance += (at(r, i) - mean) * (at(r, i) - mean) / count;
  }
  for (int64_t r = 0; r < c.p.rows; ++r) {
    for (int64_t i = first; i < first + width; ++i) {
      const auto k = static_cast<size_t>(i);
      const double expected = (at(r, i) - mean) / std::sqrt(variance + 1e-5f) * c.weight[k] + c.bias[k];
      CHECK_CLOSE(y.at(r, i), activated(expected, c.p.activation), 3e-6 * (1.0 + std::fabs(c.p.offset)));
    }
  }
}

void check_problem(const Problem& p) {
  const check::Context context(std::to_string(p.rows) + " rows of " + std::to_string(p.cols) + " in " +
                               std::to_string(p.groups));
  const Case c(p);
  for_each_isa([&](const KernelTable& table) {
    Matrix y = c.result();
    run(table, c.args(y), std::max(p.rows, c.args(y).pieces()));
    CHECK(y.intact());
    for (int64_t group = 0; group < p.groups; ++group) check_group(c, group, y);
  });
}

}  // namespace

TEST(sizes) {
  for (const int64_t rows : {1, 2, 15, 16, 17, 70}) {
    check_problem({rows, 6, 2});
    check_problem({rows, 64, 8});
    check_problem({rows, 99, 3});
  }
}
TEST(more_rows_than_blocks_of_the_least_size) { check_problem({700, 20, 4}); }
TEST(more_columns_than_a_panel) { check_problem({18, 400, 8}); }
TEST(one_group_and_groups_of_one_column) {
  check_problem({33, 40, 1});
  check_problem({33, 40, 40});
}
TEST(a_mean_much_larger_than_the_spread) { check_problem({600, 24, 3, 100.0f}); }
TEST(followed_by_an_activation) {
  for (int kind = 0; kind <= static_cast<int>(kLastActivation); ++kind) {
    check_problem({20, 50, 5, 0.0f, static_cast<Activation>(kind)});
  }
}

TEST(bits_do_not_depend_on_the_partition) {
  const Case c({650, 300, 4});
  for_each_isa([&](const KernelTable& table) {
    Matrix whole = c.result(), parts = c.result();
    run(table, c.args(whole), 1 << 20);
    run(table, c.args(parts), 7);
    CHECK(same_bits(whole.copy(), parts.copy()));
  });
}

CHECK_MAIN()
