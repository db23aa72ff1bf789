#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "parallel/communicator.h"
#include "parallel/shard_plan.h"

namespace specdec {

/// Softmax statistics of one row over the whole vocabulary at a temperature: z = logit / temperature,
/// p(x) = exp(z(x) - max) / sum.
struct RowSum {
  float max = 0;
  float sum = 0;
};

/// The vocabulary-parallel output layer and the few collectives by which its logits travel (docs/protocol.md,
/// "Decision"). Logits themselves stay cut: [rows, local vocabulary] on each rank.
class ParallelHead {
 public:
  /// `spec`: the rows of the output matrix that plan.vocabulary() names.
  ParallelHead(Backend& backend, Communicator& group, const ShardPlan& plan, const LinearSpec& spec);

  /// hidden [rows, d_model] -> logits [rows, local vocabulary].
  void forward(ConstRows hidden, Rows logits, Stream stream);

  // Each below is one collective, called by all ranks of the group with the same arguments.

  /// argmax of every row, the lowest id on a tie; on every rank.
  void argmax(ConstRows logits, std::span<std::int32_t> out, Stream stream);
  /// Statistics of every row at `temperature` > 0, and z(entry[r]) for each row r < entries.size(); on every rank. The
  /// slices' statistics are combined in the fixed tree over all 16 canonical slices, so the bits do not depend on the
  /// number of ranks.
  void sums(ConstRows logits, float temperature, std::span<const std::int32_t> entry, std::span<RowSum> out,
            std::span<float> entry_z, Stream stream);
  /// Whole rows on rank 0: out [rows * vocabulary], in host memory; empty on the other ranks.
  void gather_rows(ConstRows logits, std::span<float> out, Stream stream);

  /// Whole rows on every rank: out [rows, vocabulary], in the backend's memory.
  void whole_rows(ConstRows logits, Rows out, Stream stream);

  Backend& backend() { return backend_; }
  /// Of this rank's logits, as backends take them.
  std::span<const Range> slices() const { return slices_; }
  std::int64_t vocabulary() const { return plan_.shape().vocabulary; }
  /// One rank has whole rows.
  bool is_whole() const { return group_.size() == 1; }
  std::int64_t local_vocabulary() const { return plan_.vocabulary().size(); }
  const PackedLinear& weight() const { return *weight_; }
  std::size_t bytes() const { return weight_->bytes(); }

 private:
  /// This rank's rows, to a place that has max_vocabulary_shard() entries for each.
  void download_shard(ConstRows logits, std::span<float> mine, Stream stream);
  /// put(shard, where it begins in whole rows) of every rank and row in all_rows_.
  template <typename Put>
  void each_shard(std::int64_t rows, Put put) const;

  Backend& backend_;
  Communicator& group_;
  ShardPlan plan_;
  std::vector<Range> slices_;
  std::unique_ptr<PackedLinear> weight_;
  // Messages, kept between calls so that none allocates after the first of its size.
  std::vector<SliceMax> my_max_, all_max_;
  std::vector<SliceSum> my_slices_, my_sums_, all_sums_;
  std::vector<float> all_rows_;
};

}  // namespace specdec
