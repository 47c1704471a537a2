#include "int8_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

struct Problem {
  int64_t m, n, k;
  Floats x, w;
  int64_t block_rows = 0;
  Epilogue epilogue;

  Problem(int64_t rows, int64_t channels, int64_t depth, uint32_t seed = 5) : m(rows), n(channels), k(depth) {
    Random random(seed);
    x = random.floats(m * x_ld());
    w = random.floats(n * k);
  }
  int64_t x_ld() const { return k + 3; }
  float& at(int64_t row, int64_t col) { return x[static_cast<size_t>(row * x_ld() + col)]; }
  // The exact sum times both scales, rounded as fp32 does; nothing else may come out.
  std::vector<Floats> products() const {
    std::vector<Quantized> columns;
    for (int64_t j = 0; j < n; ++j) columns.push_back(quantized(w.data() + j * k, k));
    std::vector<Floats> result;
    for (int64_t i = 0; i < m; ++i) {
      const Quantized row = quantized(x.data() + i * x_ld(), k);
      Floats values;
      for (const Quantized& column : columns) {
        int64_t sum = 0;
        for (size_t p = 0; p < row.values.size(); ++p) sum += row.values[p] * column.values[p];
        values.push_back(static_cast<float>(sum) * (row.scale * column.scale));
      }
      result.push_back(values);
    }
    return result;
  }
};

// A problem on one variant: packed weights, quantized rows and the output.
class Run {
 public:
  Run(const Int8Table& table, const Problem& p)
      : table_(table),
        p_(p),
        packed_(int8_packed(table, p.w, p.n, {1, p.k})),
        values_(table.rows_bytes(p.m, p.k)),
        scales_(static_cast<size_t>(p.m)),
        y(p.m, p.n, p.n + 5) {
    args_.x = p.x.data();
    args_.x_ld = p.x_ld();
    args_.packed = reinterpret_cast<const float*>(packed_.data());
    args_.y = y.data();
    args_.y_ld = y.ld();
    args_.m = p.m;
    args_.n = p.n;
    args_.k = p.k;
    args_.epilogue = p.epilogue;
    args_.block_rows = p.block_rows;
    for (int64_t row = 0; row < p.m; row += 7) table.quantize_rows(args_, {row, std::min(p.m, row + 7)}, input());
    CHECK(values_.intact());
  }
  void part(Range rows, Range panels) { table_.linear(args_, input(), rows, panels); }
  Run& whole() {
    part({0, p_.m}, {0, int8_panels(table_, p_.n)});
    CHECK(y.intact());
    return *this;
  }

 private:
  Int8Input input() { return {values_.data(), scales_.data()}; }
  const Int8Table& table_;
  const Problem& p_;
  Bytes packed_, values_;
  Floats scales_;
  LinearArgs args_;

 public:
  Matrix y;
};

void check_exact(const Problem& p) {
  const check::Context context(std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k));
  const std::vector<Floats> expected = p.products();
  for_each_int8([&](const Int8Table& table) {
    Run run(table, p);
    run.whole();
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        CHECK_CLOSE(run.y.at(i, j), expected[static_cast<size_t>(i)][static_cast<size_t>(j)], 0.0);
      }
    }
  });
}

}  // namespace

TEST(sizes_around_tile_edges) {
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 27}) {
    for (const int64_t n : {1, 15, 16, 17, 32, 33, 70}) check_exact({m, n, 37});
  }
}

TEST(depths_around_groups) {
  for (const int64_t k : {1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 63, 64, 65, 255, 256, 258, 1027}) check_exact({5, 35, k});
}

TEST(more_rows_than_one_block) { check_exact({150, 40, 3000}); }

TEST(the_longest_sum_of_the_largest_products_is_exact) {
  CHECK(kInt8MaxDepth * 127 * 127 <= INT32_MAX && (kInt8MaxDepth + 1) * 127 * 127 > INT32_MAX);
  Problem p(4, 5, kInt8MaxDepth);
  for (int64_t k = 0; k < p.k; ++k) {
    const float alternating = k % 2 ? -1.0f : 1.0f;
    p.at(0, k) = 1.0f;
    p.at(1, k) = -1.0f;
    p.at(2, k) = alternating;
    p.at(3, k) = k % 4 < 2 ? 1.0f : -1.0f;
    const float channels[] = {1.0f, -1.0f, alternating, k % 4 < 2 ? -1.0f : 1.0f, k == 0 ? 1.0f : 0.0f};
    for (int64_t j = 0; j < 5; ++j) p.w[static_cast<size_t>(j * p.k + k)] = channels[j];
  }
  check_exact(p);
}

TEST(rows_and_channels_of_zeros) {
  Problem p(9, 20, 50);
  for (int64_t k = 0; k < p.k; ++k) {
    p.at(4, k) = k % 2 ? 0.0f : -0.0f;
    p.w[static_cast<size_t>(7 * p.k + k)] = 0.0f;
  }
  check_exact(p);
}

TEST(equal_rows_give_equal_results) {
  Problem p(15, 34, 77);
  for (int64_t i = 1; i < p.m; ++i) std::copy_n(p.x.begin(), p.k, &p.at(i, 0));
  check_exact(p);
}

TEST(an_outlier_takes_the_scale_of_its_row_alone) {
  Problem p(6, 20, 41);
  p.at(2, 17) = 1e30f;
  p.at(3, 0) = -3e38f;
  p.w[static_cast<size_t>(5 * p.k)] = 1e4f;
  check_exact(p);
}

TEST(ties_round_to_even) {
  Problem p(2, 3, 9);
  const float row[] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -125.5f};
  std::copy_n(row, 9, &p.at(0, 0));
  std::copy_n(row, 9, p.w.begin());
  check_exact(p);
}

TEST(values_near_the_smallest_numbers) {
  for (const int units : {1, 63, 64, 100, 127, 190, 254, 400}) {
    Problem p(2, 3, 10);
    for (int64_t k = 0; k < p.k; ++k) p.at(1, k) = static_cast<float>(units - k) * 1.4013e-45f;
    for (float& w : p.w) w *= 1e30f;
    check_exact(p);
  }
}

TEST(every_epilogue_and_activation) {
  Problem p(15, 37, 60);
  Random random(9);
  const Floats bias = random.floats(p.n), residual = random.floats(p.m * (p.n + 2));
  const Floats gamma = random.floats(p.n), beta = random.floats(p.n);
  const std::vector<Floats> products = p.products();
  for (int activation = 0; activation <= 5; ++activation) {
    for (int parts = 0; parts < 16; ++parts) {
      p.epilogue = Epilogue();
      p.epilogue.activation = static_cast<Activation>(activation);
      if (parts & 1) p.epilogue.bias = bias.data();
      if (parts & 2) p.epilogue.residual = residual.data();
      if (parts & 8) p.epilogue.residual_ld = p.n + 2;  // else one row for all
      if (parts & 4) {
        p.epilogue.gamma = gamma.data();
        p.epilogue.beta = beta.data();
      }
      for_each_int8([&](const Int8Table& table) {
        Run run(table, p);
        run.whole();
        for (int64_t i = 0; i < p.m; ++i) {
          for (int64_t j = 0; j < p.n; ++j) {
            const double product = products[static_cast<size_t>(i)][static_cast<size_t>(j)];
            CHECK_CLOSE(run.y.at(i, j), vla::test::epilogue(product, p.epilogue, i, j), 1e-5);
          }
        }
      });
    }
  }
}

TEST(bits_do_not_depend_on_the_partition) {
  Problem p(61, 137, 530);
  const Floats bias = Random(3).floats(p.n);
  p.epilogue.bias = bias.data();
  p.epilogue.activation = Activation::kGelu;
  for_each_int8([&](const Int8Table& table) {
    Run whole(table, p);
    whole.whole();
    const int64_t panels = int8_panels(table, p.n);
    for (const int64_t row_step : {1, 2, 7, 14, 31}) {
      for (const int64_t panel_step : {1, 3}) {
        Run parts(table, p);
        for (int64_t r = 0; r < p.m; r += row_step) {
          for (int64_t q = 0; q < panels; q += panel_step) {
            parts.part({r, std::min(p.m, r + row_step)}, {q, std::min(panels, q + panel_step)});
          }
        }
        CHECK(same_bits(whole.y.copy(), parts.y.copy()));
      }
    }
    for (const int64_t rows : {1, 9, 1000}) {
      Problem blocks = p;
      blocks.block_rows = rows;
      Run other(table, blocks);
      CHECK(same_bits(whole.y.copy(), other.whole().y.copy()));
    }
  });
}

TEST(a_range_writes_only_its_part) {
  const Problem p(20, 100, 9);
  for_each_int8([&](const Int8Table& table) {
    Run run(table, p);
    const float untouched = run.y.at(0, 0);
    run.part({3, 11}, {1, 2});
    run.part({2, 2}, {0, 1});
    run.part({0, 4}, {1, 1});
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        const bool inside = i >= 3 && i < 11 && j / table.tile_cols == 1;
        CHECK((run.y.at(i, j) != untouched) == inside);
      }
    }
  });
}

TEST(the_largest_value_is_none_where_any_is_no_number_or_infinite) {
  Floats x = Random(7).floats(43);
  x[20] = -9.0f;
  for_each_int8([&](const Int8Table& table) {
    CHECK(table.largest(x.data(), {0, 43}) == 9.0f && table.largest(x.data(), {21, 43}) < 9.0f);
    for (const float value : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      for (const size_t at : {0, 15, 16, 42}) {
        Floats some = x;
        some[at] = value;
        CHECK(std::isnan(table.largest(some.data(), {0, 43})));
      }
    }
  });
}

CHECK_MAIN()
