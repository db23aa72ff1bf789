#pragma once

#include <cstdint>
#include <vector>

#include "backend/tensor.h"

namespace specdec {

/// The inner dimension of every row-parallel product is cut into this many canonical slices, whatever the number of ranks
/// (docs/numerics.md, rule 1). It is also the largest number of ranks of a group.
inline constexpr int kCanonicalSlices = 16;
inline constexpr std::int64_t kFeedForwardUnit = 32;
inline constexpr std::int64_t kVocabularyUnit = 64;

/// The sizes of a model that are cut.
struct ShardShape {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< divides heads
  std::int64_t head_dim = 0;
  std::int64_t feed_forward = 0;
  std::int64_t vocabulary = 0;
};

/// Who has which heads, feed-forward columns and vocabulary rows. Pure arithmetic: no I/O, no communication.
///
/// Rank r of R owns the canonical slices [16 r / R, 16 (r + 1) / R). Slice i holds the query heads [i H / 16, (i + 1) H / 16), and in
/// units of 32 feed-forward columns and 64 vocabulary rows likewise (the last unit may be short). Slices may be empty. With R a power
/// of two the slices of a rank are a whole subtree of the summation tree, so the sums have the same bits for R = 1, 2, 4, 8, 16.
class ShardPlan {
 public:
  /// Throws kBadInput when R > 16 or a rank would have nothing to do.
  ShardPlan(const ShardShape& shape, int rank, int ranks);

  const ShardShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Canonical slices of this rank.
  Range slices() const { return slices_of(rank_); }
  Range slices_of(int rank) const;

  // Global index ranges of this rank.
  Range query_heads() const;
  Range kv_heads() const;  ///< those that query_heads() touch; replicated where two ranks share one
  Range feed_forward() const;
  Range vocabulary() const { return vocabulary_of(rank_); }
  Range vocabulary_of(int rank) const;
  /// Largest vocabulary shard of any rank: what an equal-size gather carries per rank.
  std::int64_t max_vocabulary_shard() const;

  /// For each query head of this rank, the index among kv_heads() of the KV head that it reads.
  std::vector<std::int32_t> kv_head_of_query_head() const;

  // One range per canonical slice of this rank, as offsets into its local inner dimension (or local vocabulary).
  std::vector<Range> attention_slices() const;  ///< over query_heads().size() * head_dim
  std::vector<Range> feed_forward_slices() const;
  std::vector<Range> vocabulary_slices() const;

 private:
  ShardShape shape_;
  int rank_;
  int ranks_;
};

}  // namespace specdec
