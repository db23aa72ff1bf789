#pragma once

namespace specdec::tests {

inline constexpr double kRoundoff = 0x1p-24;  ///< unit roundoff of float

}  // namespace specdec::tests
