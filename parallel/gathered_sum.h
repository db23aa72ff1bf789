#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "backend/error.h"

namespace specdec {

/// Elements of a payload that are gathered from all ranks at a time, so that they fit into `scratch_bytes` together: a multiple of 64, for alignment.
constexpr std::size_t gathered_elements(std::size_t scratch_bytes, std::size_t element_bytes, int ranks) {
  constexpr std::size_t kGrain = 64;
  return scratch_bytes / (element_bytes * static_cast<std::size_t>(ranks)) / kGrain * kGrain;
}

/// An exact all-reduce from a library that can only move bytes: data = sum over ranks, piece by piece, where gather(piece, all) is to bring every rank's piece to
/// all [ranks * piece.size()] in rank order, and sum(all, piece) adds them up. `scratch` bounds the memory, and what it holds is free again when the
/// sum that read it is done: on a device the pieces follow each other in one stream.
template <typename T, class Gather, class Sum>
void reduce_gathered(std::span<T> data, std::span<std::byte> scratch, int ranks, Gather&& gather, Sum&& sum) {
  const std::size_t most = gathered_elements(scratch.size(), sizeof(T), ranks);
  check(most > 0, "reduce_gathered: the scratch holds no piece of every rank");
  T* const all = reinterpret_cast<T*>(scratch.data());
  for (std::size_t begin = 0; begin < data.size(); begin += most) {
    const std::span<T> piece = data.subspan(begin, std::min(most, data.size() - begin));
    gather(std::span<const T>(piece), all);
    sum(static_cast<const T*>(all), piece);
  }
}

}  // namespace specdec
