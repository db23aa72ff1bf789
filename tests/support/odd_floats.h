#pragma once

#include <limits>

namespace specdec::tests {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace specdec::tests
