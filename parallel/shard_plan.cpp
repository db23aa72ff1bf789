#include "parallel/shard_plan.h"

#include <algorithm>
#include <string>

#include "backend/error.h"

namespace specdec {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// What canonical slices [slices.begin, slices.end) hold of `size` elements cut in units of `unit`.
Range cut(Range slices, std::int64_t size, std::int64_t unit) {
  const std::int64_t units = divide_up(size, unit);
  const auto at = [&](std::int64_t slice) { return std::min(size, slice * units / kCanonicalSlices * unit); };
  return {at(slices.begin), at(slices.end)};
}

/// One range per slice, relative to the first one's begin.
std::vector<Range> cut_each(Range slices, std::int64_t size, std::int64_t unit) {
  const std::int64_t origin = cut(slices, size, unit).begin;
  std::vector<Range> ranges;
  for (std::int64_t s = slices.begin; s < slices.end; ++s) {
    const Range global = cut({s, s + 1}, size, unit);
    ranges.push_back({global.begin - origin, global.end - origin});
  }
  return ranges;
}

}  // namespace

ShardPlan::ShardPlan(const ShardShape& shape, int rank, int ranks) : shape_(shape), rank_(rank), ranks_(ranks) {
  check(ranks >= 1 && rank >= 0 && rank < ranks, "ShardPlan: rank outside the group");
  check(shape.kv_heads >= 1 && shape.heads % shape.kv_heads == 0, "ShardPlan: kv_heads must divide heads");
  if (ranks > kCanonicalSlices) {
    throw_bad_input("parallel: " + std::to_string(ranks) + " ranks; a model is cut over at most " +
                    std::to_string(kCanonicalSlices));
  }
  for (int r = 0; r < ranks; ++r) {
    const Range owned = slices_of(r);
    if (cut(owned, shape.heads, 1).empty() && cut(owned, shape.feed_forward, kFeedForwardUnit).empty() &&
        vocabulary_of(r).empty()) {
      throw_bad_input("parallel: " + std::to_string(ranks) + " ranks leave rank " + std::to_string(r) +
                      " nothing to do for a model of " + std::to_string(shape.heads) + " heads, feed-forward " +
                      std::to_string(shape.feed_forward) + ", vocabulary " + std::to_string(shape.vocabulary) +
                      "; use fewer ranks");
    }
  }
}

Range ShardPlan::slices_of(int rank) const {
  return {std::int64_t{kCanonicalSlices} * rank / ranks_, std::int64_t{kCanonicalSlices} * (rank + 1) / ranks_};
}

Range ShardPlan::query_heads() const { return cut(slices(), shape_.heads, 1); }

Range ShardPlan::kv_heads() const {
  const Range heads = query_heads();
  const std::int64_t group = shape_.heads / shape_.kv_heads;
  return heads.empty() ? Range{heads.begin / group, heads.begin / group}
                       : Range{heads.begin / group, (heads.end - 1) / group + 1};
}

Range ShardPlan::feed_forward() const { return cut(slices(), shape_.feed_forward, kFeedForwardUnit); }

Range ShardPlan::vocabulary_of(int rank) const { return cut(slices_of(rank), shape_.vocabulary, kVocabularyUnit); }

std::int64_t ShardPlan::max_vocabulary_shard() const {
  std::int64_t largest = 0;
  for (int r = 0; r < ranks_; ++r) {
    largest = std::max(largest, vocabulary_of(r).size());
  }
  return largest;
}

std::vector<std::int32_t> ShardPlan::kv_head_of_query_head() const {
  const std::int64_t group = shape_.heads / shape_.kv_heads;
  const std::int64_t first = kv_heads().begin;
  std::vector<std::int32_t> map;
  for (std::int64_t h = query_heads().begin; h < query_heads().end; ++h) {
    map.push_back(static_cast<std::int32_t>(h / group - first));
  }
  return map;
}

std::vector<Range> ShardPlan::attention_slices() const {
  std::vector<Range> ranges = cut_each(slices(), shape_.heads, 1);
  for (Range& range : ranges) {
    range = {range.begin * shape_.head_dim, range.end * shape_.head_dim};
  }
  return ranges;
}

std::vector<Range> ShardPlan::feed_forward_slices() const {
  return cut_each(slices(), shape_.feed_forward, kFeedForwardUnit);
}

std::vector<Range> ShardPlan::vocabulary_slices() const {
  return cut_each(slices(), shape_.vocabulary, kVocabularyUnit);
}

}  // namespace specdec
