#include <limits>

#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

void check_problem(int64_t h, int64_t w, int64_t channels, int64_t kernel, int64_t stride, int64_t padding) {
  const check::Context context(std::to_string(h) + "x" + std::to_string(w) + "x" + std::to_string(channels));
  Random random(3);
  const Floats x = random.floats(h * w * channels, -5.0f, -1.0f);  // a zero from padding would win
  const int64_t out_h = (h + 2 * padding - kernel) / stride + 1, out_w = (w + 2 * padding - kernel) / stride + 1;
  for_each_isa([&](const KernelTable& table) {
    Matrix y(out_h * out_w, channels, channels);
    MaxPool2dArgs a;
    a.x = x.data();
    a.in_h = h;
    a.in_w = w;
    a.channels = channels;
    a.y = y.data();
    a.out_h = out_h;
    a.out_w = out_w;
    a.kernel = kernel;
    a.stride = stride;
    a.padding = padding;
    table.max_pool2d(a, {0, out_h / 2});
    table.max_pool2d(a, {out_h / 2, out_h});
    CHECK(y.intact());
    for (int64_t oy = 0; oy < out_h; ++oy) {
      for (int64_t ox = 0; ox < out_w; ++ox) {
        for (int64_t c = 0; c < channels; ++c) {
          float m = -std::numeric_limits<float>::infinity();
          for (int64_t iy = oy * stride - padding; iy < oy * stride - padding + kernel; ++iy) {
            for (int64_t ix = ox * stride - padding; ix < ox * stride - padding + kernel; ++ix) {
              if (iy < 0 || iy >= h || ix < 0 || ix >= w) continue;
              m = std::max(m, x[static_cast<size_t>((iy * w + ix) * channels + c)]);
            }
          }
          CHECK(y.at(oy * out_w + ox, c) == m);
        }
      }
    }
  });
}

}  // namespace

TEST(resnet_pool) { check_problem(15, 22, 64, 3, 2, 1); }
TEST(odd_channels) {
  check_problem(9, 7, 1, 3, 2, 1);
  check_problem(9, 7, 19, 2, 2, 0);
  check_problem(5, 5, 33, 5, 1, 2);
}

CHECK_MAIN()
