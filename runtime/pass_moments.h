#pragma once

#include <cstdint>

namespace specdec {

/// What a pass on a device is timed between (Backend::make_moments).
enum PassMoment : std::uint8_t { kPassBegin, kPassEnd, kPassMoments };

}  // namespace specdec
