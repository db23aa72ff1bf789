#pragma once

#include <string_view>

#include "backend/cpu/isa.h"
#include "parallel/communicator.h"

namespace specdec {

/// The instruction set that all ranks of `group` compute with: the weakest of what they have, since the bits of a logit depend on it.
/// `asked` is "auto", or the name of one that every rank must have. Throws kBadInput on every rank, `key` saying where `asked` was
/// written. Collective.
Isa agree_on_isa(Communicator& group, std::string_view asked, std::string_view key);

}  // namespace specdec
