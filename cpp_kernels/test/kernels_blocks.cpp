#include <cmath>
#include <cstring>

#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

constexpr BlockForm kForms[] = {BlockForm::kQ8_0, BlockForm::kQ4_0, BlockForm::kQ4_1};
using Bytes = std::vector<std::byte>;

const char* name_of(BlockForm form) {
  return form == BlockForm::kQ8_0 ? "q8_0" : form == BlockForm::kQ4_0 ? "q4_0" : "q4_1";
}

// The value of the bits of a float16, from its definition.
double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

// A weight [n][k] in blocks of random bytes, with scales of ordinary, tiny and zero size, and its values.
struct BlockMatrix {
  BlockForm form;
  int64_t n, k;
  Bytes blocks;
  Floats values;

  BlockMatrix(BlockForm block_form, int64_t rows, int64_t cols, uint32_t seed = 3)
      : form(block_form), n(rows), k(cols), blocks(static_cast<size_t>(rows * cols / 32 * block_bytes(block_form))) {
    std::mt19937 random(seed);
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
    const auto stride = static_cast<size_t>(block_bytes(form));
    for (size_t at = 0; at < blocks.size(); at += stride) {
      set_half(at, random);
      if (form == BlockForm::kQ4_1) set_half(at + 2, random);
      for (int i = 0; i < 32; ++i) values.push_back(static_cast<float>(value(at, i)));
    }
  }

 private:
  // Exponents up to 2^-6, so that a weight is at most of the size of one.
  void set_half(size_t at, std::mt19937& random) {
    const auto bits = static_cast<uint16_t>(random() % 50 == 0 ? random() % 1024 : (random() % 9 << 10 | random() % 1024));
    const auto signed_bits = static_cast<uint16_t>(bits | (random() % 2 << 15));
    std::memcpy(&blocks[at], &signed_bits, sizeof signed_bits);
  }
  double half_at(size_t at) const {
    uint16_t bits;
    std::memcpy(&bits, &blocks[at], sizeof bits);
    return half_value(bits);
  }
  double value(size_t at, int i) const {
    const double scale = half_at(at);
    if (form == BlockForm::kQ8_0) return scale * static_cast<int8_t>(blocks[at + 2 + static_cast<size_t>(i)]);
    const size_t q = at + static_cast<size_t>(block_bytes(form)) - 16 + static_cast<size_t>(i % 16);
    const int nibble = static_cast<int>(blocks[q]) >> (i < 16 ? 0 : 4) & 15;
    return form == BlockForm::kQ4_0 ? scale * (nibble - 8) : scale * nibble + half_at(at + 2);
  }
};

Bytes packed_blocks(const KernelTable& table, const BlockMatrix& w) {
  const int64_t all = panels(table, w.n);
  Bytes out(static_cast<size_t>(all * table.tile_cols * w.k / kBlockValues * block_bytes(w.form)), std::byte{0xee});
  for (int64_t p = 0; p < all; ++p) table.pack_blocks(w.form, w.blocks.data(), w.n, w.k, out.data(), {p, p + 1});
  return out;
}

struct Case {
  BlockMatrix w;
  int64_t m;
  Floats x, bias, residual;
  Epilogue epilogue;

  Case(BlockForm form, int64_t rows, int64_t n, int64_t k, Activation activation = Activation::kNone)
      : w(form, n, k), m(rows) {
    Random random(11);
    x = random.floats(m * (k + 3));
    bias = random.floats(n);
    residual = random.floats(m * n);
    epilogue.bias = bias.data();
    epilogue.residual = residual.data();
    epilogue.residual_ld = n;
    epilogue.activation = activation;
  }
  LinearArgs args(const void* packed, Matrix& y) const {
    LinearArgs a;
    a.x = x.data();
    a.x_ld = w.k + 3;
    a.packed = static_cast<const float*>(packed);
    a.y = y.data();
    a.y_ld = y.ld();
    a.m = m;
    a.n = w.n;
    a.k = w.k;
    a.epilogue = epilogue;
    return a;
  }
  double expected(int64_t row, int64_t col) const {
    double sum = 0;
    for (int64_t i = 0; i < w.k; ++i) {
      sum += double{x[static_cast<size_t>(row * (w.k + 3) + i)]} * w.values[static_cast<size_t>(col * w.k + i)];
    }
    return vla::test::epilogue(sum, epilogue, row, col);
  }
};

// The product from blocks, cut into ranges of `row_step` rows and `panel_step` panels.
Floats product(const KernelTable& table, const Case& c, const Bytes& packed, int64_t row_step, int64_t panel_step) {
  Matrix y(c.m, c.w.n, c.w.n + 5);
  const LinearArgs args = c.args(packed.data(), y);
  Floats scratch(static_cast<size_t>(table.blocks_scratch(c.w.k)));
  const int64_t all = panels(table, c.w.n);
  for (int64_t r = 0; r < c.m; r += row_step) {
    for (int64_t p = 0; p < all; p += panel_step) {
      const Range rows{r, std::min(c.m, r + row_step)}, part{p, std::min(all, p + panel_step)};
      table.linear_blocks(c.w.form, args, rows, part, scratch.data());
    }
  }
  CHECK(y.intact());
  return y.copy();
}

void check_product(const Case& c) {
  const check::Context context(std::string(name_of(c.w.form)) + " " + std::to_string(c.m) + "x" +
                               std::to_string(c.w.n) + "x" + std::to_string(c.w.k));
  for_each_isa([&](const KernelTable& table) {
    const int64_t all = panels(table, c.w.n);
    const Floats expanded = packed(table, c.w.values, c.w.n, c.w.k);
    Matrix wide(c.m, c.w.n, c.w.n + 5);
    table.linear(c.args(expanded.data(), wide), {0, c.m}, {0, all});
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.w.n; ++j) CHECK_CLOSE(wide.at(i, j), c.expected(i, j), product_tolerance(c.w.k));
    }
    const Bytes blocks = packed_blocks(table, c.w);
    const std::pair<int64_t, int64_t> cuts[] = {{c.m, all}, {1, all}, {2, 3}, {5, 1}, {table.tile_rows + 1, 2}};
    for (const auto& [row_step, panel_step] : cuts) {
      CHECK(same_bits(product(table, c, blocks, row_step, panel_step), wide.copy()));
    }
  });
}

}  // namespace

// The same as the values of the blocks in fp32 give, however the product is cut: a row's result does not depend on how
// many rows a pass has.
TEST(products_of_blocks_are_those_of_their_values_to_the_last_bit) {
  for (const BlockForm form : kForms) {
    for (const int64_t m : {1, 2, 3, 7, 8, 16, 64}) {
      for (const int64_t n : {1, 40, 96}) {
        for (const int64_t k : {32, 160, 608}) check_product(Case(form, m, n, k));
      }
    }
  }
}

TEST(an_activation_follows) {
  for (const BlockForm form : kForms) {
    for (const int64_t m : {3, 20}) check_product(Case(form, m, 40, 96, Activation::kSilu));
  }
}

TEST(a_range_of_no_rows_writes_nothing) {
  const Case c(BlockForm::kQ4_1, 4, 40, 64);
  for_each_isa([&](const KernelTable& table) {
    const Bytes blocks = packed_blocks(table, c.w);
    Matrix y(c.m, 40, 40);
    const Floats before = y.copy();
    Floats scratch(static_cast<size_t>(table.blocks_scratch(64)));
    table.linear_blocks(c.w.form, c.args(blocks.data(), y), {2, 2}, {0, panels(table, 40)}, scratch.data());
    CHECK(same_bits(y.copy(), before));
  });
}

TEST(rows_of_a_table_in_blocks) {
  const std::vector<int32_t> ids = {39, 0, 17, 17, 31, 32};
  const auto count = static_cast<int64_t>(ids.size());
  for (const BlockForm form : kForms) {
    const BlockMatrix w(form, 40, 576);
    for_each_isa([&](const KernelTable& table) {
      const Bytes blocks = packed_blocks(table, w);
      Matrix y(count, w.k, w.k + 2);
      EmbeddingArgs args;
      args.table = reinterpret_cast<const float*>(blocks.data());
      args.ids = ids.data();
      args.y = y.data();
      args.y_ld = y.ld();
      args.cols = w.k;
      Floats scratch(static_cast<size_t>(table.blocks_scratch(w.k)));
      table.embed_blocks(form, args, {0, 2}, scratch.data());
      table.embed_blocks(form, args, {2, count}, scratch.data());
      CHECK(y.intact());
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t j = 0; j < w.k; ++j) {
          CHECK(y.at(r, j) == w.values[static_cast<size_t>(ids[static_cast<size_t>(r)] * w.k + j)]);
        }
      }
    });
  }
}

CHECK_MAIN()
