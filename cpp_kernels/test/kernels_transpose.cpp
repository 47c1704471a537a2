#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

struct Shape {
  int64_t batches, rows, cols, width;
};

// x [batches][rows][cols][width] with gaps at the end of its rows, turned in bands of `step`.
void check_shape(const Shape& s, int64_t step) {
  const check::Context context(std::to_string(s.batches) + "x" + std::to_string(s.rows) + "x" +
                               std::to_string(s.cols) + "x" + std::to_string(s.width));
  const int64_t x_row = s.cols * s.width + 3, x_batch = s.rows * x_row;
  Random random(5);
  const Floats x = random.floats(s.batches * x_batch);
  for_each_isa([&](const KernelTable& table) {
    Matrix y(s.batches * s.cols, s.rows * s.width, s.rows * s.width + 2);
    TransposeArgs t;
    t.x = x.data();
    t.x_batch = x_batch;
    t.x_row = x_row;
    t.x_col = t.y_row = t.width = s.width;
    t.y = y.data();
    t.y_batch = s.cols * y.ld();
    t.y_col = y.ld();
    t.batches = s.batches;
    t.rows = s.rows;
    t.cols = s.cols;
    for (int64_t band = 0; band < t.bands(); band += step) {
      table.transpose(t, {band, std::min(t.bands(), band + step)});
    }
    CHECK(y.intact());
    for (int64_t b = 0; b < s.batches; ++b) {
      for (int64_t r = 0; r < s.rows; ++r) {
        for (int64_t c = 0; c < s.cols * s.width; ++c) {
          const float got = y.at(b * s.cols + c / s.width, r * s.width + c % s.width);
          CHECK(got == x[static_cast<size_t>(b * x_batch + r * x_row + c)]);
        }
      }
    }
  });
}

}  // namespace

TEST(matrices_of_any_size) {
  for (const int64_t rows : {1, 3, 4, 8, 15, 16, 17, 33}) {
    for (const int64_t cols : {1, 5, 8, 16, 31, 50}) check_shape({1, rows, cols, 1}, 1);
  }
}
TEST(several_matrices) { check_shape({5, 9, 37, 1}, 2); }
TEST(whole_rows) {
  for (const int64_t width : {2, 16, 19}) check_shape({1, 7, 21, width}, 1);
}

CHECK_MAIN()
