#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace specdec {

/// A hash of a sequence of words, kept up to date word by word. Each step is a bijection of the state for a given word and of the
/// word for a given state, so two sequences that differ in one word never have the same hash, and others with a chance of 2^-64. Not
/// meant against an adversary.
class RunningHash {
 public:
  void add(std::uint64_t word) {
    // The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
    std::uint64_t x = (state_ ^ word) + 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    state_ = x ^ (x >> 31);
  }
  /// Their number, then the bytes.
  void add(std::span<const std::byte> bytes);

  std::uint64_t value() const { return state_; }
  friend bool operator==(const RunningHash&, const RunningHash&) = default;

 private:
  std::uint64_t state_ = 0;
};

/// What every rank must hold for a round to make sense, as rank 0 has it; travels with the round.
struct Fingerprint {
  std::uint64_t message = 0;        ///< hash of the round itself
  std::uint64_t configuration = 0;  ///< hash of all that a rank was set up with
  std::uint64_t history = 0;        ///< RunningHash of the tokens in the cache, in order
  std::int64_t cached = 0;          ///< their number, once what the round says is committed
  std::uint64_t drafted = 0;        ///< hash of the round before with its rows filled in, where all ranks drafted in it
};

}  // namespace specdec
