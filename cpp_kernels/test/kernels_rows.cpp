// Softmax and rotary positions.
#include <limits>

#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

void check_softmax(int64_t cols, float spread) {
  const check::Context context(std::to_string(cols) + " columns");
  const int64_t rows = 5, x_ld = cols + 2;
  Random random(1);
  const Floats x = random.floats(rows * x_ld, -spread, spread);
  for_each_isa([&](const KernelTable& table) {
    Matrix y(rows, cols, cols + 3);
    const SoftmaxArgs a{x.data(), x_ld, y.data(), y.ld(), cols};
    table.softmax(a, {0, 2});
    table.softmax(a, {2, rows});
    CHECK(y.intact());
    for (int64_t r = 0; r < rows; ++r) {
      double largest = -1e300, total = 0;
      const auto at = [&](int64_t c) { return static_cast<double>(x[static_cast<size_t>(r * x_ld + c)]); };
      for (int64_t c = 0; c < cols; ++c) largest = std::max(largest, at(c));
      for (int64_t c = 0; c < cols; ++c) total += std::exp(at(c) - largest);
      for (int64_t c = 0; c < cols; ++c) CHECK_CLOSE(y.at(r, c), std::exp(at(c) - largest) / total, 4e-7);
    }
  });
}

struct Turn {
  int64_t rows, heads, half;
  bool interleaved;
  Floats x, angles, cos, sin;

  Turn(int64_t r, int64_t h, int64_t d, bool pairs = false) : rows(r), heads(h), half(d), interleaved(pairs) {
    Random random(4);
    x = random.floats(rows * x_ld());
    angles = random.floats(rows * table_ld(), -3.0f, 3.0f);
    for (const float angle : angles) {
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
  }
  int64_t width() const { return heads * 2 * half; }
  int64_t x_ld() const { return width() + 5; }
  int64_t table_ld() const { return half + 1; }
  RotaryArgs args(float* y, int64_t y_ld) const {
    RotaryArgs a;
    a.x = x.data();
    a.x_ld = x_ld();
    a.cos = cos.data();
    a.sin = sin.data();
    a.cos_ld = a.sin_ld = table_ld();
    a.y = y;
    a.y_ld = y_ld;
    a.heads = heads;
    a.half = half;
    a.interleaved = interleaved;
    return a;
  }
  // Columns of pair `i` of a head.
  int64_t first(int64_t head, int64_t i) const { return head * 2 * half + (interleaved ? 2 * i : i); }
  int64_t second(int64_t head, int64_t i) const { return first(head, i) + (interleaved ? 1 : half); }
  void check_pair(int64_t row, int64_t head, int64_t i, float turned, float across) const {
    const auto at = [&](int64_t c) { return static_cast<double>(x[static_cast<size_t>(row * x_ld() + c)]); };
    const double a = at(first(head, i)), b = at(second(head, i));
    const auto k = static_cast<size_t>(row * table_ld() + i);
    CHECK_CLOSE(turned, a * cos[k] - b * sin[k], 3e-7);
    CHECK_CLOSE(across, b * cos[k] + a * sin[k], 3e-7);
  }
};

void check_turn(const Turn& turn) {
  const check::Context context("half " + std::to_string(turn.half));
  for_each_isa([&](const KernelTable& table) {
    Matrix y(turn.rows, turn.width(), turn.width() + 2);
    table.rotary(turn.args(y.data(), y.ld()), {0, 1});
    table.rotary(turn.args(y.data(), y.ld()), {1, turn.rows});
    CHECK(y.intact());
    for (int64_t r = 0; r < turn.rows; ++r) {
      for (int64_t h = 0; h < turn.heads; ++h) {
        for (int64_t i = 0; i < turn.half; ++i) {
          turn.check_pair(r, h, i, y.at(r, turn.first(h, i)), y.at(r, turn.second(h, i)));
        }
      }
    }
  });
}

}  // namespace

TEST(softmax_of_any_width) {
  for (const int64_t cols : {1, 2, 7, 8, 16, 31, 33, 64, 100}) check_softmax(cols, 4.0f);
}
TEST(softmax_of_large_values) { check_softmax(37, 1e4f); }

TEST(what_is_masked_weighs_nothing) {
  const float inf = std::numeric_limits<float>::infinity();
  Floats x(19, -inf);
  x[17] = 3.0f;
  for_each_isa([&](const KernelTable& table) {
    Floats y(19, -1.0f);
    table.softmax({x.data(), 19, y.data(), 19, 19}, {0, 1});
    for (size_t c = 0; c < y.size(); ++c) CHECK(y[c] == (c == 17 ? 1.0f : 0.0f));
  });
}

TEST(softmax_in_place) {
  Random random(8);
  const Floats x = random.floats(3 * 21);
  for_each_isa([&](const KernelTable& table) {
    Floats apart(x.size()), in_place = x;
    table.softmax({x.data(), 21, apart.data(), 21, 21}, {0, 3});
    table.softmax({in_place.data(), 21, in_place.data(), 21, 21}, {0, 3});
    CHECK(same_bits(apart, in_place));
  });
}

TEST(rotary_turns_pairs) {
  for (const int64_t half : {1, 3, 4, 8, 17, 32, 33}) check_turn(Turn(4, 3, half));
}

TEST(rotary_turns_neighbours) {
  for (const int64_t half : {1, 3, 8, 17, 32}) check_turn(Turn(4, 3, half, true));
}

TEST(rotary_in_place) {
  for (const bool interleaved : {false, true}) {
    const Turn turn(3, 2, 11, interleaved);
    for_each_isa([&](const KernelTable& table) {
      Floats apart = turn.x, in_place = turn.x;
      table.rotary(turn.args(apart.data(), turn.x_ld()), {0, turn.rows});
      RotaryArgs a = turn.args(in_place.data(), turn.x_ld());
      a.x = in_place.data();
      table.rotary(a, {0, turn.rows});
      CHECK(same_bits(apart, in_place));
    });
  }
}

CHECK_MAIN()
