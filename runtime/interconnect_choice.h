#pragma once

#include <array>
#include <optional>
#include <string>

#include "parallel/interconnect.h"

namespace specdec {

/// What the messages of a run take: a described interconnect, or nothing for the machine's own (`native`).
using InterconnectChoice = std::optional<Interconnect>;

inline constexpr const char* kNativeInterconnect = "native";

/// What `algorithm` may be, each by its name_of.
inline constexpr std::array kLinkAlgorithms = {LinkAlgorithm::kRing, LinkAlgorithm::kTree, LinkAlgorithm::kOneShot};

/// As written in a config and in reports.
std::string name_of(const InterconnectChoice& choice);
/// For tables: "native" or "modelled NAME".
std::string label_of(const InterconnectChoice& choice);

}  // namespace specdec
