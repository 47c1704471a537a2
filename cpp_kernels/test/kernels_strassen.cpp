// Linear layers by Strassen's method.
#include "linear_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

// Sums of quarters are larger than the quarters, and what cancels has been rounded.
double tolerance(int64_t k) { return 4 * product_tolerance(k); }

int64_t pairs_of_panels(const KernelTable& table, int64_t n) { return n / (2 * table.tile_cols); }

Floats packed_sums(const KernelTable& table, const Floats& w, int64_t n, int64_t k) {
  Floats out(static_cast<size_t>(table.strassen_packed_size(n, k)), -777.25f);
  for (int64_t p = 0; p < pairs_of_panels(table, n); ++p) table.strassen_pack(w.data(), n, k, out.data(), {p, p + 1});
  return out;
}

// The kernel on scratch memory of its size exactly.
void run(const KernelTable& table, const LinearArgs& args, Range rows, Range panels) {
  Floats scratch(static_cast<size_t>(table.strassen_scratch(args)), -777.25f);
  table.strassen(args, rows, panels, scratch.data());
}

// A problem whose columns are so many pairs of panels.
Problem with_columns(const KernelTable& table, Problem p, int64_t pairs) {
  p.n = 2 * pairs * table.tile_cols;
  return p;
}

void check_problem(const Problem& shape, int64_t pairs) {
  for_each_isa([&](const KernelTable& table) {
    const Problem p = with_columns(table, shape, pairs);
    const check::Context context(p.name());
    const Case c(p);
    Matrix y = c.result();
    const Floats weights = packed_sums(table, c.w, p.n, p.k);
    run(table, c.args(weights, y), {0, p.m / 2}, {0, pairs});
    CHECK(y.intact());
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) CHECK_CLOSE(y.at(i, j), c.expected(i, j), tolerance(p.k));
    }
  });
}

}  // namespace

TEST(layers_that_divide_into_quarters_of_whole_panels_fit) {
  for_each_isa([](const KernelTable& table) {
    const int64_t n = 2 * table.tile_cols;
    CHECK(table.strassen_fits(n, 32) && table.strassen_fits(3 * n, 544));
    CHECK(!table.strassen_fits(n + 1, 32) && !table.strassen_fits(table.tile_cols, 32));
    CHECK(!table.strassen_fits(n, 48) && !table.strassen_fits(n, 31));
  });
}

TEST(even_and_odd_numbers_of_rows_around_tile_and_block_edges) {
  for (const int64_t m : {1, 2, 3, 5, 12, 13, 25, 26, 27, 53, 64}) check_problem({m, 0, 64}, 1);
  for (const int64_t m : {160, 317}) check_problem({m, 0, 32, 5, 9}, 2);
}

TEST(depths_in_one_part_and_in_several) {
  for (const int64_t k : {32, 96, 160, 1024, 1056, 2080}) {
    for (const int64_t m : {6, 7}) check_problem({m, 0, k}, 1);
  }
}

TEST(every_epilogue_and_activation) {
  for (int activation = 0; activation <= static_cast<int>(Activation::kSigmoid); ++activation) {
    for (int parts = 0; parts < 8; ++parts) {
      Problem p{15, 0, 64, 0, 3};
      p.bias = parts & 1;
      p.residual = parts & 2;
      p.film = parts & 4;
      p.one_residual_row = activation % 2 == 1;
      p.activation = static_cast<Activation>(activation);
      check_problem(p, 1);
    }
  }
}

TEST(bits_do_not_depend_on_the_partition) {
  for (const int64_t m : {61, 62}) {
    for_each_isa([&](const KernelTable& table) {
      Problem p = with_columns(table, {m, 0, 1056, 2, 1}, 3);
      p.bias = p.residual = p.film = true;
      p.activation = Activation::kRelu;
      const Case c(p);
      check_bits(c, packed_sums(table, c.w, p.n, p.k), m / 2, 3,
                 [&](const LinearArgs& args, Range rows, Range panels) { run(table, args, rows, panels); });
    });
  }
}

TEST(blocks_of_any_number_of_rows_change_no_bit) {
  for_each_isa([](const KernelTable& table) {
    const Problem p = with_columns(table, {75, 0, 96}, 2);
    const Case c(p);
    const Floats weights = packed_sums(table, c.w, p.n, p.k);
    Matrix expected = c.result();
    run(table, c.args(weights, expected), {0, p.m / 2}, {0, 2});
    for (const int64_t block_rows : {1, 7, 40, 1000}) {
      Matrix y = c.result();
      LinearArgs args = c.args(weights, y);
      args.block_rows = block_rows;
      run(table, args, {0, p.m / 2}, {0, 2});
      CHECK(same_bits(expected.copy(), y.copy()));
    }
  });
}

TEST(a_range_writes_only_its_pairs) {
  for_each_isa([](const KernelTable& table) {
    const Problem p = with_columns(table, {21, 0, 32}, 2);
    const Case c(p);
    Matrix y = c.result();
    const float untouched = y.at(0, 0);
    const Floats weights = packed_sums(table, c.w, p.n, p.k);
    run(table, c.args(weights, y), {3, 7}, {1, 2});
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        const bool inside = i < 20 && i % 10 >= 3 && i % 10 < 7 && j / table.tile_cols % 2 == 1;
        CHECK((y.at(i, j) != untouched) == inside);
      }
    }
  });
}

CHECK_MAIN()
