#include "check.hpp"
#include "kernels/tables.hpp"
#include "runtime/partition.hpp"

using namespace vla;

namespace {

// Whether the chunks of the grid cover each part of the matrix once.
bool covers_once(const Grid& grid) {
  std::vector<int> rows(static_cast<std::size_t>(grid.rows * grid.panels));
  for (int64_t chunk = 0; chunk < grid.chunks(); ++chunk) {
    const Range r = grid.row_range(chunk);
    const Range p = grid.panel_range(chunk);
    if (r.begin >= r.end || p.begin >= p.end) return false;
    for (int64_t i = r.begin; i < r.end; ++i) {
      for (int64_t j = p.begin; j < p.end; ++j) ++rows[static_cast<std::size_t>(i * grid.panels + j)];
    }
  }
  for (const int count : rows) {
    if (count != 1) return false;
  }
  return true;
}

}  // namespace

TEST(grids_cover_the_output_once) {
  const KernelTable& kernels = *portable_kernels();
  for (const Schedule schedule : {Schedule::kStatic, Schedule::kDynamic}) {
    for (const int threads : {1, 2, 3, 16}) {
      const Sharing sharing{threads, schedule};
      for (const int64_t m : {1, 5, 6, 7, 50, 634}) {
        for (const int64_t n : {1, 16, 17, 512, 3200}) {
          for (const int64_t k : {1, 512}) {
            const check::Context context(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " on " +
                                         std::to_string(threads));
            const Grid linear = cut_linear(kernels, m, n, k, sharing);
            const Grid conv2d = cut_conv2d(kernels, m, n, k, sharing);
            const Grid winograd = cut_winograd(kernels, m, n, k, {4}, sharing);
            CHECK(linear.rows == m && linear.panels == ceil_div(n, kernels.tile_cols));
            // Of two rows and two panels or more.
            const Grid strassen = cut_strassen(kernels, m + 1, n + 2 * kernels.tile_cols, k, sharing);
            CHECK(strassen.rows == (m + 1) / 2);
            for (const Grid& grid : {linear, conv2d, winograd, strassen}) {
              CHECK(covers_once(grid));
              if (threads == 1) CHECK(grid.chunks() == 1);
              if (schedule == Schedule::kStatic) CHECK(grid.chunks() <= threads);
            }
          }
        }
      }
    }
  }
}

TEST(large_outputs_give_every_thread_as_many_chunks) {
  const KernelTable& kernels = *portable_kernels();
  for (const Schedule schedule : {Schedule::kStatic, Schedule::kDynamic}) {
    for (const int threads : {2, 4, 8}) {
      const Sharing sharing{threads, schedule};
      const int64_t counts[] = {
          cut_linear(kernels, 634, 512, 3200, sharing).chunks(), cut_linear(kernels, 634, 3200, 512, sharing).chunks(),
          cut_linear(kernels, 50, 3200, 512, sharing).chunks(),  cut_linear(kernels, 1, 4096, 4096, sharing).chunks(),
          cut_conv2d(kernels, 300, 512, 4608, sharing).chunks(), cut_winograd(kernels, 1200, 64, 64, {4}, sharing).row_chunks,
          cut_winograd(kernels, 20, 512, 512, {4}, sharing).chunks(), cut_strassen(kernels, 634, 512, 3200, sharing).chunks()};
      for (const int64_t count : counts) {
        CHECK(count >= threads && count % threads == 0);
        if (schedule == Schedule::kStatic) CHECK(count == threads);
      }
    }
  }
  CHECK(cut_linear(kernels, 634, 512, 3200, {2}).chunks() > 2);
}

TEST(small_work_is_not_shared_out) {
  CHECK(chunk_count(1, int64_t{1} << 40, {8}) == 1);
  CHECK(chunk_count(100, 10, {8}) == 1);
  CHECK(cut_linear(*portable_kernels(), 1, 64, 64, {8}).chunks() == 1);
}

TEST(slices_are_even) {
  for (const int64_t units : {1, 7, 64, 1001}) {
    for (int64_t chunks = 1; chunks <= units && chunks < 20; ++chunks) {
      int64_t next = 0;
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const Range range = slice_of(units, chunks, chunk);
        CHECK(range.begin == next);
        const int64_t length = range.end - range.begin;
        CHECK(length == units / chunks || length == ceil_div(units, chunks));
        next = range.end;
      }
      CHECK(next == units);
    }
  }
}

CHECK_MAIN()
