#include "runtime/probe.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>

#include "kernels/kernels.hpp"

namespace vla {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

double fma_peak(const KernelTable& kernels, double seconds) {
  if (!(seconds > 0)) throw std::invalid_argument("fma_peak: seconds must be positive");
  // Rounds of about a millisecond: short enough that some are not interrupted.
  constexpr double kRound = 1e-3;
  int64_t iterations = 1000;
  double best = 0;
  const auto start = Clock::now();
  do {
    const auto round = Clock::now();
    const double operations = kernels.fma_peak(iterations);
    const double taken = std::max(seconds_since(round), 1e-9);
    if (taken < kRound / 2) {
      iterations *= 2;
    } else {
      best = std::max(best, operations / taken);
    }
  } while (seconds_since(start) < seconds || best == 0);
  return best;
}

}  // namespace vla
