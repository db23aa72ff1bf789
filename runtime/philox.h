#pragma once

#include <cstdint>

namespace specdec {

/// What a random number is for. Part of its key, so that no uniform is ever used twice.
enum class Purpose : std::uint8_t { kDraft = 0, kAccept = 1, kResample = 2, kPrompt = 3, kOrder = 4, kGuess = 5 };

/// Names one random number. Two calls with the same key give the same number on every rank, whatever was drawn before
/// (docs/numerics.md, rule 7).
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t sequence = 0;  ///< prompt number in the batch
  std::uint32_t round = 0;
  std::uint32_t position = 0;  ///< of the token that the number decides
  std::uint8_t level = 0;      ///< 0: target; 1: its draft; 2: the draft's draft
  std::uint8_t branch = 0;     ///< of a token tree; 0 in a chain
  Purpose purpose = Purpose::kDraft;
};

/// Uniform in [0, 1): a multiple of 2^-53, from the first two words of philox4x32 (backend/philox.h).
double uniform(const RandomKey& key);

}  // namespace specdec
