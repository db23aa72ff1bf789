#pragma once

#include <cstdint>
#include <string_view>

#include "models/config.h"
#include "models/tensor_source.h"
#include "runtime/config.h"

namespace specdec {

/// Of all that decides what a rank computes, as this rank has it: the settings, the build, the instruction set, the number of ranks, and the
/// target that lies on this rank's disk: its configuration, its tensors' names, types and shapes, and a few bytes out of the middle of
/// each, so that another checkpoint of the same shape shows. Equal on all ranks that will compute the same (agreement.h).
std::uint64_t configuration_hash(const RunConfig& config, const ModelConfig& target, const TensorSource& source,
                                 std::string_view isa, int ranks);

}  // namespace specdec
