#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/row_sampler.h"
#include "runtime/drafter.h"

namespace specdec {

/// The rows of a scored round, sampled where their logits lie: the host uploads its questions, enqueues all that follows, downloads the answers and waits
/// once. What stands of the draft is decided only then, so every row is sampled as if it were the one that the next token comes from; on a device the rows
/// are sampled side by side. For verifiers whose next token comes from the residual at its own place.
class RowsInPlace {
 public:
  RowsInPlace(Backend& backend, const SamplingParams& params);

  /// The tokens of an unread draft to where a pass reads them.
  void bring(const UnreadDraft& draft, Token* tokens, Stream stream);

  /// `logits` [1 + K, vocabulary], whole rows in the backend's memory; `slices` of the vocabulary, as ParallelHead::sums() takes them. Of records[i] the
  /// uniform of the token that would follow i accepted ones is given, and the drafted token in `asked` (-1 in the last, and where `draft` is unread): that token's probability comes
  /// back in `entry`, and what would follow in `token`.
  void sample(ConstRows logits, std::span<const Range> slices, const DraftBlock& draft, std::span<RowRecord> records,
              Stream stream);

 private:
  /// Room for `count` of T in the backend's memory.
  template <typename T>
  T* room(std::unique_ptr<Buffer>& memory, std::size_t count);
  /// The draft's distributions [K, vocabulary] in the backend's memory.
  ConstRows draft_rows(const DraftBlock& draft, const RowRecord* records, std::int64_t drafted, std::int64_t vocabulary,
                       Stream stream);

  Backend& backend_;
  SamplingParams params_;
  std::unique_ptr<RowSampler> sampler_;
  std::unique_ptr<Buffer> records_;
  std::unique_ptr<Buffer> p_rows_;
  std::unique_ptr<Buffer> q_rows_;
};

}  // namespace specdec
