#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

TEST(lookup_by_channel) {
  for (const int64_t channels : {1, 3, 4}) {
    const int64_t pixels = 301;
    Random random(6);
    const Floats table_values = random.floats(channels * 256);
    std::vector<uint8_t> x(static_cast<size_t>(pixels * channels));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * 37);
    for_each_isa([&](const KernelTable& table) {
      Matrix y(pixels, channels, channels);
      table.lookup_u8(x.data(), table_values.data(), channels, y.data(), {0, 100});
      table.lookup_u8(x.data(), table_values.data(), channels, y.data(), {100, pixels});
      CHECK(y.intact());
      for (int64_t p = 0; p < pixels; ++p) {
        for (int64_t c = 0; c < channels; ++c) {
          const uint8_t value = x[static_cast<size_t>(p * channels + c)];
          CHECK(y.at(p, c) == table_values[static_cast<size_t>(c * 256 + value)]);
        }
      }
    });
  }
}

TEST(rows_by_index) {
  for (const int64_t cols : {1, 15, 16, 50}) {
    const int64_t ld = cols + 3;
    Random random(8);
    const Floats values = random.floats(10 * ld);
    const std::vector<int32_t> ids = {9, 0, 3, 3, 7};
    for_each_isa([&](const KernelTable& table) {
      Matrix y(5, cols, cols + 2);
      const EmbeddingArgs a{values.data(), ld, ids.data(), y.data(), y.ld(), cols};
      table.embedding(a, {0, 2});
      table.embedding(a, {2, 5});
      CHECK(y.intact());
      for (int64_t r = 0; r < 5; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          CHECK(y.at(r, c) == values[static_cast<size_t>(ids[static_cast<size_t>(r)] * ld + c)]);
        }
      }
    });
  }
}

CHECK_MAIN()
