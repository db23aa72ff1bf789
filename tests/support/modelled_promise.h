#pragma once

#include <cstdint>

#include "parallel/modelled_link.h"

/// What ModelledLink promises, checked with GoogleTest's expectations on every rank. Collective over the link.
namespace specdec::battery {

/// Runs `operations` of all kinds under `interconnect`, one rank after another dawdling, and holds the clock against the formulas: no
/// rank leaves before the arrival of the last rank that it needs plus the modelled time, jitter included. `link` must be new, with
/// `seed`. Native again afterwards.
void expect_never_shorter(ModelledLink& link, const Interconnect& interconnect, std::uint64_t seed, int operations);

}  // namespace specdec::battery
