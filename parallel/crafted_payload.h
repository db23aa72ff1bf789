#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/dtype.h"

namespace specdec {

/// Payloads whose sum over ranks is known without adding it up, in fp32 and in bf16, in whatever order it is added:
/// small integers whose partial sums all are integers up to 256.
///
/// Every iteration has other values at every place, so that a result that is stale, not summed at all, or put where
/// another part belongs is wrong. T is float or BF16.
template <typename T>
class CraftedPayload {
 public:
  CraftedPayload(int rank, int ranks);

  /// What this rank gives in iteration `number`.
  void fill(std::span<T> data, std::uint64_t number) const { repeat(mine_, data, number); }
  /// The sum of iteration `number`.
  void fill_sum(std::span<T> data, std::uint64_t number) const { repeat(sum_, data, number); }
  /// Elements of `data` that are not, bit for bit, the sum of iteration `number`.
  std::size_t count_wrong(std::span<const T> data, std::uint64_t number) const;

 private:
  static void repeat(const std::vector<T>& table, std::span<T> data, std::uint64_t number);

  // One period of what this rank gives and of the sum; iteration and place choose where in it an element stands.
  std::vector<T> mine_;
  std::vector<T> sum_;
};

extern template class CraftedPayload<float>;
extern template class CraftedPayload<BF16>;

}  // namespace specdec
