#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "backend/backend.h"

namespace specdec {

/// Rows that are read from where they lie, a mapped checkpoint as a rule.
class HostTable final : public RowTable {
 public:
  explicit HostTable(const WeightView& weight) : weight_(weight) {}

  /// x[r] = row index[r] in fp32, or zeros for -1.
  void read(const std::int32_t* index, Rows x) const {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      const std::span<float> row(x.row(r), static_cast<std::size_t>(x.cols));
      if (index[r] < 0) {
        std::ranges::fill(row, 0.0F);
      } else {
        read_row(weight_, index[r], row);
      }
    }
  }

 private:
  WeightView weight_;
};

}  // namespace specdec
