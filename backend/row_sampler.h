#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/sampler.h"

/// Sampling from rows of logits where they lie. Everything stays in the memory of the backend, so that a chain of operations, up to the token that the
/// next pass starts with, is enqueued without a wait; what the host wants to know of a row is one small record.
namespace specdec {

/// What is asked about one row and what was found out about it. Records lie in the backend's memory, one for each row of a call: the host uploads them
/// with its questions and downloads them with all answers at once. An operation writes only the fields that it says.
struct RowRecord {
  double uniform = 0;       ///< asked: in [0, 1), decides what is drawn
  std::int32_t asked = -1;  ///< asked: the token whose entry is wanted; -1: none
  float entry = 0;          ///< of the token asked about
  float max = 0;            ///< of z = logits / temperature, over the whole row
  float sum = 0;            ///< of exp(z - max)
  std::int32_t token = -1;  ///< drawn, or the largest; -1: no weight was positive
  float weight = 0;         ///< of that token
  RowFault fault = RowFault::kNone;
};

/// The line of a row that cannot be sampled, as kBadInput, once the host has its record; nothing for a sound one.
void require_sound(const RowRecord& record);

/// Made for one way of sampling by Backend::make_row_sampler(). Rows are whole, [rows, vocabulary], with at most kMostSampledTokens entries, and so are `records` and `tokens` [rows]; all lie in the memory of the
/// backend that made the sampler and outlives it. On every backend the same fp32 logits give the same bits (docs/numerics.md, rule 7). An output may be
/// an input. Logits that cannot be sampled make no error here but a fault in the record (require_sound), probabilities of zero and no token.
class RowSampler {
 public:
  virtual ~RowSampler() = default;

  /// probabilities = what Sampler::warp makes of logits. Writes fault.
  virtual void warp(ConstRows logits, Rows probabilities, RowRecord* records, Stream stream) = 0;

  /// Statistics at the temperature, which is not 0: those of the `slices` of the vocabulary combined in the fixed tree. Writes max and sum.
  virtual void sums(ConstRows logits, std::span<const Range> slices, RowRecord* records, Stream stream) = 0;
  /// probabilities = exp(z - max) / sum with the records' statistics; without top-k and top-p. Writes fault.
  virtual void warp_with_sums(ConstRows logits, Rows probabilities, RowRecord* records, Stream stream) = 0;

  /// What was drawn into records, for who comes next: token i becomes asked[i].asked and tokens[i], each unless null.
  virtual void hand_on(std::span<const RowRecord> drawn, RowRecord* asked, std::int32_t* tokens, Stream stream) = 0;

  /// Writes entry: that of `asked`, 0 for none.
  virtual void entries(ConstRows rows, RowRecord* records, Stream stream) = 0;

  /// out = the distribution that is sure of `asked`: a deterministic draft's.
  virtual void point_masses(const RowRecord* records, Rows out, Stream stream) = 0;
  /// out = residual(p, q) (backend/sampler.h).
  virtual void residuals(ConstRows p, ConstRows q, Rows out, Stream stream) = 0;

  /// What draw() finds with `uniform`. Writes token and weight, and the token also to `tokens` unless that is null: the next pass may read it there.
  virtual void draw(ConstRows weights, RowRecord* records, std::int32_t* tokens, Stream stream) = 0;
  /// The lowest of the largest entries; writes what draw() writes.
  virtual void argmax(ConstRows values, RowRecord* records, std::int32_t* tokens, Stream stream) = 0;
};

inline constexpr std::int64_t kMostSampledTokens = std::int64_t{1} << 20;

}  // namespace specdec
