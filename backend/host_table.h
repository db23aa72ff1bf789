#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace specdec {

/// Rows that are read from where they lie, a mapped checkpoint as a rule.
class HostTable final : public RowTable {
 public:
  explicit HostTable(const WeightView& weight) : weight_(weight) {}

  /// x[r] = row index[r] in fp32.
  void read(const std::int32_t* index, Rows x) const {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      read_row(weight_, index[r], {x.row(r), static_cast<std::size_t>(x.cols)});
    }
  }

 private:
  WeightView weight_;
};

}  // namespace specdec
