// The arena and constants.
#include <new>
#include <stdexcept>

#include "check.hpp"
#include "runtime/arena.hpp"
#include "runtime/constants.hpp"
#include "runtime/dispatch.hpp"

using namespace vla;

// The sanitizers are to answer like the allocator they stand in for. They look these functions up by name.
extern "C" {
__attribute__((visibility("default"))) const char* __asan_default_options() { return "allocator_may_return_null=1"; }
__attribute__((visibility("default"))) const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
}

namespace {

bool aligned(const void* data, std::size_t alignment) { return reinterpret_cast<std::uintptr_t>(data) % alignment == 0; }

template <typename Error, typename Action>
bool throws(Action action) {
  try {
    action();
  } catch (const Error&) {
    return true;
  }
  return false;
}

}  // namespace

TEST(arenas_are_aligned_and_zeroed) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{1000}, std::size_t{5} << 20}) {
    const Arena arena(bytes);
    CHECK(arena.bytes() == bytes);
    CHECK(aligned(arena.data(), kAlignment));
    bool zero = true;
    for (std::size_t i = 0; i < bytes; ++i) zero = zero && arena.data()[i] == std::byte{0};
    CHECK(zero);
    arena.data()[bytes - 1] = std::byte{1};
  }
  CHECK(Arena(0).data() == nullptr);
}

TEST(memory_that_cannot_be_had_is_refused) {
  for (const volatile std::size_t bytes : {std::size_t{1} << 62, ~std::size_t{0}}) {  // volatile: no warning
    CHECK(throws<std::bad_alloc>([&] { Arena arena(bytes); }));
  }
}

TEST(constants_are_copied_or_borrowed) {
  float values[] = {1.0f, 2.0f, 3.0f};
  const auto copied = Constant::copy(values, 3, DType::kF32);
  auto owner = std::make_shared<int>(0);
  auto borrowed = Constant::borrow(values, 3, DType::kF32, owner);
  CHECK(owner.use_count() == 2);
  values[1] = 5.0f;
  CHECK(reinterpret_cast<const float*>(copied->data())[1] == 2.0f);
  CHECK(aligned(copied->data(), kAlignment));
  CHECK(reinterpret_cast<const float*>(borrowed->data())[1] == 5.0f);
  CHECK(borrowed->bytes() == 12 && borrowed->count() == 3);
  borrowed.reset();
  CHECK(owner.use_count() == 1);
}

TEST(bad_constants_are_refused) {
  alignas(8) const std::byte bytes[16] = {};
  CHECK(throws<std::invalid_argument>([&] { Constant::copy(bytes, -1, DType::kU8); }));
  CHECK(throws<std::invalid_argument>([&] { Constant::borrow(bytes + 1, 2, DType::kI32, nullptr); }));
  CHECK(Constant::borrow(bytes + 1, 2, DType::kU8, nullptr)->bytes() == 2);
  CHECK(Constant::copy(nullptr, 0, DType::kF32)->bytes() == 0);
}

TEST(weights_are_packed_alike_by_any_number_of_threads) {
  const KernelTable& kernels = select_kernels("");
  constexpr int64_t kN = 301;
  constexpr int64_t kK = 700;
  std::vector<float> weights(kN * kK);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 1013);
  ThreadPool one(PoolOptions{1, {}, 0});
  ThreadPool three(PoolOptions{3, {}, 0});
  const PackedWeights alone(kernels, one, weights.data(), kN, kK);
  const PackedWeights together(kernels, three, weights.data(), kN, kK);
  CHECK(alone.n() == kN && alone.k() == kK && alone.bytes() == kernels.packed_size(kN, kK) * 4);
  CHECK(std::memcmp(alone.data(), together.data(), static_cast<std::size_t>(alone.bytes())) == 0);
  CHECK(throws<std::invalid_argument>([&] { PackedWeights bad(kernels, one, weights.data(), 0, 5); }));
  CHECK(throws<std::invalid_argument>([&] { PackedWeights bad(kernels, one, weights.data(), 2, 9, WeightForm{{3}}); }));
  CHECK(throws<std::invalid_argument>([&] { PackedWeights bad(kernels, one, weights.data(), 2, 10, WeightForm{{2}}); }));
  CHECK(throws<std::invalid_argument>([&] { PackedWeights bad(kernels, one, weights.data(), 5, -5); }));
}

TEST(weights_for_strassens_method_divide_into_quarters_and_are_not_in_bfloat16) {
  const KernelTable& kernels = select_kernels("");
  const int64_t n = 6 * kernels.tile_cols, k = 96;
  std::vector<float> weights(static_cast<std::size_t>(n * k));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i) / 3.0f;
  ThreadPool one(PoolOptions{1, {}, 0});
  ThreadPool three(PoolOptions{3, {}, 0});
  WeightForm form;
  form.strassen = form.bf16_where_exact = true;
  const PackedWeights alone(kernels, one, weights.data(), n, k, form);
  const PackedWeights together(kernels, three, weights.data(), n, k, form);
  CHECK(alone.strassen() && !alone.bf16() && alone.bytes() == 7 * n * k);
  CHECK(std::memcmp(alone.data(), together.data(), static_cast<std::size_t>(alone.bytes())) == 0);
  CHECK(throws<std::invalid_argument>([&] { PackedWeights bad(kernels, one, weights.data(), n, k - 1, form); }));
  CHECK(throws<std::invalid_argument>([&] { PackedWeights bad(kernels, one, weights.data(), n - 1, k, form); }));
  const std::vector<float> halves(weights.size(), 0.5f);
  const PackedWeights kept(kernels, one, halves.data(), n, k, form);
  CHECK(!kept.strassen() && kept.bf16() && kept.bytes() == 2 * n * k);
  form.rows = true;
  CHECK(throws<std::invalid_argument>([&] { PackedWeights bad(kernels, one, weights.data(), n, k, form); }));
}

CHECK_MAIN()
