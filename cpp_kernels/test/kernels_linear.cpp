#include <cstring>

#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

struct Problem {
  int64_t m, n, k;
  int64_t x_extra = 0, y_extra = 0;  // leading dimensions beyond the columns
  bool bias = false, residual = false, film = false;
  bool one_residual_row = false;
  Activation activation = Activation::kNone;

  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " activation " +
           std::to_string(static_cast<int>(activation));
  }
};

// Operands of a problem, and its answer in double precision.
struct Case {
  Problem p;
  Floats x, w, bias, residual, gamma, beta;
  Epilogue epilogue;

  explicit Case(const Problem& problem, uint32_t seed = 7) : p(problem) {
    Random random(seed);
    x = random.floats(p.m * x_ld());
    w = random.floats(p.n * p.k);
    bias = random.floats(p.n);
    residual = random.floats(p.m * (p.n + 3));
    gamma = random.floats(p.n);
    beta = random.floats(p.n);
    if (p.bias) epilogue.bias = bias.data();
    if (p.residual) {
      epilogue.residual = residual.data();
      epilogue.residual_ld = p.one_residual_row ? 0 : p.n + 3;
    }
    if (p.film) {
      epilogue.gamma = gamma.data();
      epilogue.beta = beta.data();
    }
    epilogue.activation = p.activation;
  }
  int64_t x_ld() const { return p.k + p.x_extra; }
  double expected(int64_t row, int64_t col) const {
    double sum = 0;
    for (int64_t i = 0; i < p.k; ++i) {
      sum += static_cast<double>(x[static_cast<size_t>(row * x_ld() + i)]) * w[static_cast<size_t>(col * p.k + i)];
    }
    return vla::test::epilogue(sum, epilogue, row, col);
  }
  LinearArgs args(const Floats& packed_w, Matrix& y) const {
    LinearArgs a;
    a.x = x.data();
    a.x_ld = x_ld();
    a.packed = packed_w.data();
    a.y = y.data();
    a.y_ld = y.ld();
    a.m = p.m;
    a.n = p.n;
    a.k = p.k;
    a.epilogue = epilogue;
    return a;
  }
  Matrix result() const { return Matrix(p.m, p.n, p.n + p.y_extra); }
};

float bf16_value(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits &= 0xffff0000u;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

void check_problem(const Problem& p) {
  const check::Context context(p.name());
  const Case c(p);
  for_each_isa([&](const KernelTable& table) {
    const Floats packed_w = packed(table, c.w, p.n, p.k);
    Matrix y = c.result();
    table.linear(c.args(packed_w, y), {0, p.m}, {0, panels(table, p.n)});
    CHECK(y.intact());
    Matrix by_rows = c.result();
    table.linear_rows(c.args(c.w, by_rows), {0, p.m}, {0, panels(table, p.n)});
    CHECK(by_rows.intact());
    const double tolerance = product_tolerance(p.k);
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        CHECK_CLOSE(y.at(i, j), c.expected(i, j), tolerance);
        CHECK_CLOSE(by_rows.at(i, j), c.expected(i, j), tolerance);
      }
    }
  });
}

// Whether `kernel` computes the same bits of c's result, with these weights, however its range is cut.
template <typename Kernel>
void check_bits(const Case& c, const Floats& weights, int64_t all_panels, Kernel kernel) {
  Matrix whole = c.result();
  kernel(c.args(weights, whole), {0, c.p.m}, {0, all_panels});
  for (const int64_t row_step : {1, 2, 7, 14, 31}) {
    for (const int64_t panel_step : {1, 3}) {
      Matrix parts = c.result();
      const LinearArgs args = c.args(weights, parts);
      for (int64_t r = 0; r < c.p.m; r += row_step) {
        for (int64_t q = 0; q < all_panels; q += panel_step) {
          kernel(args, {r, std::min(c.p.m, r + row_step)}, {q, std::min(all_panels, q + panel_step)});
        }
      }
      CHECK(same_bits(whole.copy(), parts.copy()));
    }
  }
}

std::vector<uint16_t> upper_halves(const Floats& values) {
  std::vector<uint16_t> halves;
  for (const float& value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    halves.push_back(static_cast<uint16_t>(bits >> 16));
  }
  return halves;
}

// Whether `kernel` computes the same bits from weights in fp32 and in bfloat16.
template <typename Kernel>
void check_halves(const Case& c, const Floats& weights, const std::vector<uint16_t>& halves, Kernel kernel,
                  int64_t all_panels) {
  Matrix wide = c.result(), half = c.result();
  kernel(c.args(weights, wide), {0, c.p.m}, {0, all_panels});
  LinearArgs args = c.args(weights, half);
  args.packed = reinterpret_cast<const float*>(halves.data());
  args.bf16 = true;
  kernel(args, {0, c.p.m}, {0, all_panels});
  CHECK(half.intact());
  CHECK(same_bits(wide.copy(), half.copy()));
}

}  // namespace

TEST(packing_pads_the_last_panel_with_zeros) {
  for_each_isa([](const KernelTable& table) {
    const int64_t n = table.tile_cols + 3, k = 21;
    Floats w(static_cast<size_t>(n * k));
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i + 1);
    const Floats out = packed(table, w, n, k);
    CHECK(static_cast<int64_t>(out.size()) == 2 * table.tile_cols * k);
    for (int64_t j = 0; j < 2 * table.tile_cols; ++j) {
      for (int64_t i = 0; i < k; ++i) {
        const int64_t panel = j / table.tile_cols, lane = j % table.tile_cols;
        const float got = out[static_cast<size_t>((panel * k + i) * table.tile_cols + lane)];
        CHECK(got == (j < n ? w[static_cast<size_t>(j * k + i)] : 0.0f));
      }
    }
  });
}

TEST(sizes_around_tile_and_block_edges) {
  for (const int64_t m : {1, 2, 3, 5, 6, 7, 13, 14, 15, 29, 50}) {
    for (const int64_t n : {1, 6, 15, 16, 17, 33, 64}) check_problem({m, n, 37});
  }
}

TEST(depths_around_block_edges) {
  for (const int64_t k : {1, 2, 3, 4, 5, 127, 128, 131, 132, 255, 257, 260, 511, 512, 513, 771, 1030}) check_problem({5, 35, k});
}

TEST(more_rows_than_one_block) { check_problem({183, 70, 300, 5, 9, true, true, true}); }

TEST(leading_dimensions_wider_than_the_rows) { check_problem({17, 37, 41, 7, 11, true, true}); }

TEST(every_epilogue_and_activation) {
  for (int activation = 0; activation <= 5; ++activation) {
    for (int parts = 0; parts < 8; ++parts) {
      for (const int64_t n : {32, 37}) {
        Problem p{15, n, 300, 0, 3};
        p.bias = parts & 1;
        p.residual = parts & 2;
        p.film = parts & 4;
        p.activation = static_cast<Activation>(activation);
        check_problem(p);
      }
    }
  }
}

TEST(one_residual_row_for_all) {
  Problem p{9, 40, 20};
  p.residual = p.one_residual_row = true;
  check_problem(p);
}

TEST(bits_do_not_depend_on_the_partition) {
  Problem p{61, 137, 530, 2, 1};
  p.bias = p.residual = p.film = true;
  p.activation = Activation::kRelu;
  const Case c(p);
  for_each_isa([&](const KernelTable& table) {
    check_bits(c, packed(table, c.w, p.n, p.k), panels(table, p.n), table.linear);
    check_bits(c, c.w, panels(table, p.n), table.linear_rows);
  });
}

TEST(bits_of_layers_of_few_columns_do_not_depend_on_the_partition) {
  for (const int64_t n : {1, 4, 6, 8, 16}) {
    Problem p{37, n, 275, 2, 1};
    p.bias = p.residual = p.film = true;
    p.activation = Activation::kTanh;
    check_problem(p);
    const Case c(p);
    for_each_isa([&](const KernelTable& table) { check_bits(c, c.w, panels(table, n), table.linear_rows); });
  }
}

// Weights in bfloat16 give what the same values give in fp32, in half the memory.
TEST(bf16_weights_change_no_bit) {
  for (const int64_t m : {1, 5, 14, 61}) {
    for (const int64_t n : {6, 17, 64, 137}) {
      for (const int64_t k : {3, 70, 530}) {
        Problem p{m, n, k, 2, 1};
        p.bias = true;
        Case c(p);
        for (float& w : c.w) w = bf16_value(w);
        for_each_isa([&](const KernelTable& table) {
          const Floats packed_w = packed(table, c.w, n, k);
          std::vector<uint16_t> halves(packed_w.size(), 0x7fc0);
          for (int64_t q = 0; q < panels(table, n); ++q) table.pack_bf16(c.w.data(), n, k, halves.data(), {q, q + 1});
          check_halves(c, packed_w, halves, table.linear, panels(table, n));
          check_halves(c, c.w, upper_halves(c.w), table.linear_rows, panels(table, n));
        });
      }
    }
  }
}

TEST(a_range_writes_only_its_part) {
  const Problem p{20, 100, 9};
  const Case c(p);
  for_each_isa([&](const KernelTable& table) {
    const Floats packed_w = packed(table, c.w, p.n, p.k);
    Matrix y = c.result();
    const float untouched = y.at(0, 0);
    table.linear(c.args(packed_w, y), {3, 11}, {1, 2});
    table.linear_rows(c.args(c.w, y), {3, 4}, {1, 2});
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        const bool inside = i >= 3 && i < 11 && j / table.tile_cols == 1;
        CHECK((y.at(i, j) != untouched) == inside);
      }
    }
  });
}

TEST(an_empty_range_does_nothing) {
  const Case c({4, 8, 8});
  for_each_isa([&](const KernelTable& table) {
    const Floats packed_w = packed(table, c.w, 8, 8);
    Matrix y = c.result();
    const Floats before = y.copy();
    table.linear(c.args(packed_w, y), {2, 2}, {0, 1});
    table.linear(c.args(packed_w, y), {0, 4}, {1, 1});
    CHECK(same_bits(before, y.copy()));
  });
}

CHECK_MAIN()
