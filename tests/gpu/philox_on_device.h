#pragma once

#include <vector>

#include "tests/support/philox_kernel.h"

namespace specdec::battery {

/// philox_number(0 ... blocks * threads - 1), as the current device finds them.
std::vector<PhiloxNumber> philox_on_device(int blocks, int threads);

}  // namespace specdec::battery
