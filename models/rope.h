#pragma once

#include <cstdint>
#include <vector>

#include "models/config.h"

namespace specdec {

/// cos and sin of every position's angles, [positions, head_dim / 2] each.
struct RopeTables {
  std::vector<float> cos;
  std::vector<float> sin;
};

/// Mirrors the fp32 arithmetic of transformers: frequencies (with their scaling) and the product position x frequency
/// are rounded to fp32, then its cosine and sine are taken. Elementary functions are this project's own, so the bits
/// are the same everywhere.
RopeTables rope_tables(const RopeConfig& rope, std::int64_t head_dim, std::int64_t positions);

}  // namespace specdec
