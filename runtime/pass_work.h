#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "backend/dtype.h"
#include "models/config.h"

namespace specdec {

/// A pass whose cost is asked for.
struct PassShape {
  std::int64_t rows = 1;
  std::optional<std::int64_t> logit_rows;  ///< of them, those whose logits are wanted; nothing: all
  std::int64_t context = 0;                ///< committed tokens that attention reads
  int ranks = 1;
  DType weights = DType::kBF16;
  double cache_bytes = 4;    ///< of an element of the KV cache
  double payload_bytes = 4;  ///< of an element that is reduced
};

/// What a pass makes the rank do that has most of it, and what ranks do together. Pure arithmetic: 2 all-reduces a layer of rows * d_model elements, a
/// multiply-add for each weight and row, one reading of all weights and of the cache. Norms, rotary positions and activations are not counted: their
/// operations are to those of the matrices as 1 to d_model.
struct PassWork {
  std::int64_t rows = 1;
  std::int64_t logit_rows = 1;  ///< that the head is for
  double weight_bytes = 0;      ///< of matrices, the head's included; embeddings are rows
  double head_bytes = 0;        ///< of them, the head's
  double cache_bytes = 0;       ///< read
  double operations = 0;        ///< floating point, two a multiply-add
  double attention = 0;         ///< of them, those of queries with keys and values
  std::int64_t layers = 0;
  std::int64_t all_reduces = 0;
  std::size_t payload_bytes = 0;  ///< of one all-reduce
};

/// Up to 16 ranks by the shard plan; beyond, for machines that this program does not cut models for, evenly. Throws kBadInput where the plan does.
PassWork work_of(const ModelConfig& model, const PassShape& pass);
/// The part of one rank, of at most 16.
PassWork work_of_rank(const ModelConfig& model, const PassShape& pass, int rank);

/// c^ of Leviathan et al. 2023: operations of a pass of the draft over those of one of the target, over one row after nothing.
double operations_ratio(const ModelConfig& draft, const ModelConfig& target);

/// Bytes of a weight, its share of a group's scale included.
double bytes_of_weight(DType dtype);

}  // namespace specdec
