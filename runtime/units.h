#pragma once

/// What files and reports write, in bytes, bytes a second and seconds.
namespace specdec {

inline constexpr double kMicro = 1e-6;
inline constexpr double kMega = 1e6;
inline constexpr double kGiga = 1e9;
inline constexpr double kMsPerSecond = 1e3;

}  // namespace specdec
