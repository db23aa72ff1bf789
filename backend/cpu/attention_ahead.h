#pragma once

#include <cstdint>

#include "backend/cpu/row_ops.h"

/// What attention asks for while it is at work. Keys and values of a head are few pages, which end before the machine's own prefetchers have run far ahead in them.
///
/// All of it is inlined: functions that are compiled with wider instructions must not be there for the linker to keep for all.
namespace specdec {

/// One line or a part of one with each vector taken in. Into the second cache, since nothing is waited for before the tile is done with its keys or its values.
struct Ahead {
  const char* at;
  std::int64_t step;  ///< bytes

  [[gnu::always_inline]] void ask() {
    __builtin_prefetch(at, 0, 2);
    at += step;
  }
};

/// In its place where there is so little to multiply that the core's own loads run far enough ahead, in whose way it would be.
struct AskNothing {
  [[gnu::always_inline]] void ask() {}
};

/// `ahead`, or nothing.
template <bool kAsks>
[[gnu::always_inline]] inline auto asking(Ahead ahead) {
  if constexpr (kAsks) {
    return ahead;
  } else {
    return AskNothing{};
  }
}

/// A tile among those that the queries of a block are cut into. One alone asks for the values while it takes in the keys, and for the next keys while it takes in
/// the values, if it asks (Lanes::kMostUnasked). Of several each asks for its part of the next block, so that memory is at work all the while that they multiply.
struct TileOf {
  std::int64_t index;
  std::int64_t count;

  /// What to ask for with the keys of `slots` slots.
  [[gnu::always_inline]] Ahead with_keys(const AttentionBlock& block, std::int64_t slots) const {
    // Nobody may have asked for the first block.
    if (count == 1 || (index == 0 && block.is_first)) return line_by_line(block.values());
    return part(block, part_of(block), slots);
  }
  [[gnu::always_inline]] Ahead with_values(const AttentionBlock& block, std::int64_t slots) const {
    if (count == 1) return line_by_line(block.next);
    return part(block, part_of(block) + kKeyBlock * block.head_dim / kLanes * bytes_a_vector(), slots);
  }

 private:
  static constexpr std::int64_t kLineBytes = 64;
  static constexpr std::int64_t kLanes = kLineBytes / static_cast<std::int64_t>(sizeof(float));

  [[gnu::always_inline]] static Ahead line_by_line(const float* lines) {
    return {reinterpret_cast<const char*>(lines), kLineBytes};
  }
  /// Of the next block, for each vector of a whole one.
  [[gnu::always_inline]] std::int64_t bytes_a_vector() const { return (kLineBytes + count - 1) / count; }
  [[gnu::always_inline]] std::int64_t part_of(const AttentionBlock& block) const {
    return index * bytes_a_vector() * key_block_size(block.head_dim) / kLanes;
  }
  /// With fewer slots fewer vectors ask for as much.
  [[gnu::always_inline]] Ahead part(const AttentionBlock& block, std::int64_t begin, std::int64_t slots) const {
    return {reinterpret_cast<const char*>(block.next) + begin, (bytes_a_vector() * kKeyBlock + slots - 1) / slots};
  }
};

}  // namespace specdec
