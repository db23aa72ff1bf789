#pragma once

#include <cstdint>
#include <string_view>

#include "backend/cpu/isa.h"
#include "runtime/hardware.h"

namespace specdec {

/// A machine of which nothing is known but what is common: to a factor of a few what a rank of so many threads reads a second, what more rows typically cost up to `rows` of them (rows_cost.h), and messages that
/// take no time. For choices and guesses that may not look at a clock; where times matter there are descriptions of machines.
Hardware typical_hardware(std::string_view backend, Isa isa, int ranks, int threads, std::int64_t rows);

}  // namespace specdec
