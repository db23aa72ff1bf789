#include "runtime/rows_cost.h"

#include <span>

#include "backend/error.h"

namespace specdec {
namespace {

struct Measured {
  std::int64_t rows;
  double cost;
};

/// The 1.1B shape on Zen 3, two threads.
constexpr Measured kAvx2[] = {{1, 1}, {2, 1.01}, {5, 1.26}, {9, 2.25}, {16, 3.78}};
/// The same on Zen 4.
constexpr Measured kVdpbf16ps[] = {{1, 1}, {2, 1.06}, {5, 1.11}, {9, 1.12}, {16, 1.44}};
/// The shipped target on one core with AVX-512 BF16 whose VDPBF16PS is slow.
constexpr Measured kAvx512Bf16[] = {{1, 1}, {2, 1.02}, {3, 1.09}, {5, 1.15}, {9, 1.78}, {16, 3.05}};

/// The 1.1B shape with AMX, one and two threads in the mean.
constexpr Measured kAmxBf16[] = {{1, 1}, {2, 1.02}, {5, 1.07}, {9, 1.17}, {16, 1.33}};

std::span<const Measured> measured(Isa isa) {
  if (isa == Isa::kAmxBf16) return kAmxBf16;
  if (isa == Isa::kAvx512Bf16 && has_fast_vdpbf16ps()) return kVdpbf16ps;
  if (isa >= Isa::kAvx512Bf16) return kAvx512Bf16;
  return kAvx2;
}

}  // namespace

double typical_rows_cost(std::string_view backend, Isa isa, std::int64_t rows) {
  check(rows > 0, "a pass has rows");
  if (backend != "cpu") return 1;
  const std::span<const Measured> known = measured(isa);
  std::size_t after = 1;
  while (after + 1 < known.size() && known[after].rows < rows) ++after;
  const auto [from, cost] = known[after - 1];
  const auto [to, last] = known[after];
  return cost + (last - cost) * static_cast<double>(rows - from) / static_cast<double>(to - from);
}

}  // namespace specdec
