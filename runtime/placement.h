#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace specdec {

/// Where the draft runs (design, section 4). Exact in all cases, and with the same seed the text is the same.
enum class Placement : std::uint8_t {
  kRank0,       ///< on one rank, which tells the others what it drafted
  kReplicated,  ///< whole on every rank, each with the same random numbers: nobody is told
  kSharded,     ///< cut over all ranks, as the target is
};

inline constexpr std::array kPlacements = {Placement::kRank0, Placement::kReplicated, Placement::kSharded};

/// As written in a config and in reports.
constexpr std::string_view name_of(Placement placement) {
  constexpr std::array<std::string_view, kPlacements.size()> kNames = {"rank0", "replicated", "sharded"};
  return kNames[static_cast<std::size_t>(placement)];
}

}  // namespace specdec
