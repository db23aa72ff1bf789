#include "backend/row_chain.h"

#include "backend/error.h"

namespace specdec {

void find_depths(const RowChain& chain, std::vector<std::int32_t>& depth) {
  const std::int64_t rows = chain.rows();
  depth.resize(rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int32_t parent = chain.parent[r];
    check(parent >= -1 && parent < r, "a row's parent must come before it");
    depth[r] = parent < 0 ? 0 : depth[parent] + 1;
  }
}

}  // namespace specdec
