#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace specdec {

/// depth[r] = how many ancestors row r has in its pass; in a chain that is r. Checks that parents come before their children.
void find_depths(const RowChain& chain, std::vector<std::int32_t>& depth);

}  // namespace specdec
