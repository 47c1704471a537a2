// Times linear layers with the register tile that this is compiled with: time_tile REPEATS MxKxN...
// Prints the shortest time of each layer in nanoseconds, one a line. Not part of the engine's build: it is compiled
// once for each tile that is compared.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "kernels/table.hpp"

namespace {

constexpr std::size_t kAlignment = 64;

float* values(int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(vla::VLA_ISA::round_up(count * 4, kAlignment));
  float* memory = static_cast<float*>(std::aligned_alloc(kAlignment, bytes));
  if (!memory) std::abort();
  for (int64_t i = 0; i < count; ++i) memory[i] = static_cast<float>(i % 17 - 8) / 8.0f;
  return memory;
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

int64_t shortest_ns(int64_t m, int64_t k, int64_t n, int repeats) {
  using namespace vla::VLA_ISA;
  constexpr int64_t kTileCols = kTileVecs * Vec::kWidth;
  const vla::Range rows{0, m}, panels{0, ceil_div(n, kTileCols)};
  float* x = values(m * k);
  float* weights = values(n * k);
  float* packed = values(packed_size(n, k));
  float* y = values(m * n);
  pack_weights(weights, n, k, packed, panels);
  vla::LinearArgs layer;
  layer.x = x;
  layer.x_ld = k;
  layer.packed = packed;
  layer.y = y;
  layer.y_ld = n;
  layer.m = m;
  layer.n = n;
  layer.k = k;
  int64_t best = INT64_MAX;
  for (int i = 0; i <= repeats; ++i) {
    const int64_t start = now_ns();
    linear(layer, rows, panels);
    if (i > 0) best = min_of(best, now_ns() - start);  // the first is to warm up
  }
  std::free(x);
  std::free(weights);
  std::free(packed);
  std::free(y);
  return best;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  const int repeats = std::atoi(arguments[1]);
  for (int i = 2; i < count; ++i) {
    int64_t m = 0, k = 0, n = 0;
    const int read = std::sscanf(arguments[i], "%" SCNd64 "x%" SCNd64 "x%" SCNd64, &m, &k, &n);
    if (read != 3 || repeats < 1) return 2;
    std::printf("%" PRId64 "\n", shortest_ns(m, k, n, repeats));
  }
  return 0;
}
