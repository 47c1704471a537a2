#include <cstring>

#include "linear_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

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
    check_bits(c, packed(table, c.w, p.n, p.k), p.m, panels(table, p.n), table.linear);
    check_bits(c, c.w, p.m, panels(table, p.n), table.linear_rows);
  });
}

TEST(bits_of_layers_of_few_columns_do_not_depend_on_the_partition) {
  for (const int64_t n : {1, 4, 6, 8, 16}) {
    Problem p{37, n, 275, 2, 1};
    p.bias = p.residual = p.film = true;
    p.activation = Activation::kTanh;
    check_problem(p);
    const Case c(p);
    for_each_isa([&](const KernelTable& table) { check_bits(c, c.w, p.m, panels(table, n), table.linear_rows); });
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
