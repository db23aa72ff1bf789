#pragma once

#include <cstddef>

#include "parallel/communicator.h"

/// What every transport and decorator has to do, checked with GoogleTest's expectations on every rank. Each function is
/// collective over `group`.
namespace specdec::battery {

/// all_reduce of fp32 and bf16 payloads from 0 to `largest_bytes`: random values against the tree, bit for bit, and
/// crafted integers against their exact sum.
void expect_sums(Communicator& group, std::size_t largest_bytes);
/// As expect_sums, with an all_reduce that adds in any order: crafted integers alone.
void expect_exact_sums(Communicator& group, std::size_t largest_bytes);
/// all_gather, gather to and broadcast from every rank, in place or not, from 0 to `largest_bytes` of each rank.
void expect_moves(Communicator& group, std::size_t largest_bytes);
/// `operations` of all kinds and roots and of random sizes one after another, some ranks dawdling now and then: what one
/// operation leaves behind must not hurt the next.
void expect_any_order(Communicator& group, int operations, std::size_t largest_bytes);

}  // namespace specdec::battery
