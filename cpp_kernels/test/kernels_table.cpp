#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

TEST(tables_name_their_instruction_set) {
  CHECK(portable_kernels() != nullptr);
  CHECK(std::string(portable_kernels()->isa) == "portable");
  if (avx2_kernels()) CHECK(std::string(avx2_kernels()->isa) == "avx2");
  if (avx512_kernels()) CHECK(std::string(avx512_kernels()->isa) == "avx512");
  if (neon_kernels()) CHECK(std::string(neon_kernels()->isa) == "neon");
#if defined(__x86_64__)
  CHECK(avx2_kernels() && avx512_kernels() && !neon_kernels());
#elif defined(__aarch64__)
  CHECK(!avx2_kernels() && !avx512_kernels() && neon_kernels());
#endif
}

TEST(register_tiles) {
  for_each_isa([](const KernelTable& table) {
    CHECK(table.tile_cols % table.vector_width == 0);
    CHECK(table.tile_rows >= 1);
  });
  if (avx2_kernels()) CHECK(avx2_kernels()->tile_rows == 6 && avx2_kernels()->tile_cols == 16);
  if (neon_kernels()) CHECK(neon_kernels()->tile_rows == 4 && neon_kernels()->tile_cols == 16);
}

TEST(every_entry_is_filled) {
  for_each_isa([](const KernelTable& t) {
    CHECK(t.packed_size && t.pack_weights && t.linear && t.conv2d_scratch && t.conv2d && t.max_pool2d);
    CHECK(t.attention_packed_size && t.attention_scratch && t.attention_pack && t.attention);
    CHECK(t.attention_unpacked_fits && t.attention_unpacked_scratch && t.attention_unpacked);
    CHECK(t.layer_norm && t.rms_norm && t.binary && t.pointwise && t.mean_rows && t.lookup_u8 && t.embedding);
    CHECK(t.resize && t.resample && t.fma_peak && t.read_all);
  });
}

TEST(the_peak_loop_counts_its_work) {
  for_each_isa([](const KernelTable& table) {
    const double once = table.fma_peak(1);
    CHECK(once > 0);
    CHECK(table.fma_peak(1000) == 1000 * once);
  });
}

TEST(reading_touches_every_value_in_every_pass) {
  for_each_isa([](const KernelTable& table) {
    std::vector<float> values(3 * 128);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    CHECK(table.read_all(values.data(), 384, 1) == 384.0f * 383.0f / 2);
    CHECK(table.read_all(values.data(), 256, 3) == 3 * 256.0f * 255.0f / 2);
  });
}

CHECK_MAIN()
