#pragma once

#include <cstdint>

/// Far beyond any model that exists, and small enough that products of two of them fit 64 bits.
namespace specdec {

inline constexpr std::int64_t kMostLayers = 10'000;
inline constexpr std::int64_t kLargestWidth = 1 << 20;  ///< d_model
inline constexpr std::int64_t kLargestVocabulary = 1 << 24;

}  // namespace specdec
