#pragma once

#include <string_view>

#include "runtime/placement.h"

namespace specdec {

/// Throws kBadInput, in one line that begins with `place`, where a draft so placed leaves no rank of `ranks` for the target.
void require_target_ranks(Placement placement, int ranks, std::string_view place);

}  // namespace specdec
