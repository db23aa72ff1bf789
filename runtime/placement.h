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
  kDedicated,   ///< on a rank of its own, the last one, which drafts ahead while the others score
};

inline constexpr std::array kPlacements = {Placement::kRank0, Placement::kReplicated, Placement::kSharded,
                                           Placement::kDedicated};

/// As written in a config and in reports.
constexpr std::string_view name_of(Placement placement) {
  constexpr std::array<std::string_view, kPlacements.size()> kNames = {"rank0", "replicated", "sharded", "dedicated"};
  return kNames[static_cast<std::size_t>(placement)];
}

/// Whether all ranks of the target draft together, the same tokens.
constexpr bool drafts_together(Placement placement) {
  return placement == Placement::kReplicated || placement == Placement::kSharded;
}

/// Of `ranks` ranks, those that the target is cut over: the first ones.
constexpr int target_ranks(Placement placement, int ranks) {
  return placement == Placement::kDedicated ? ranks - 1 : ranks;
}

}  // namespace specdec
