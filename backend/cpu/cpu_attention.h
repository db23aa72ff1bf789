#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/cpu_kv.h"
#include "backend/cpu/row_ops.h"
#include "backend/cpu/thread_pool.h"

namespace specdec {

/// Attention of one pass: cuts it into units of (KV heads, run of rows) for the threads and walks each unit's blocks of keys.
///
/// A row sees its keys in the order of their depth: the committed slots, then its ancestors in this pass, then itself, as if
/// they stood in slots 0, 1, 2, ... In a chain they do. In a tree the blocks that reach into the pass are first gathered in that
/// order, so a token gets the same bits from a tree as from the chain of its ancestors, where it would be had the path been committed.
///
/// Holds scratch that grows to the largest pass and is then reused.
class CpuAttention {
 public:
  /// `near_bytes`: of keys and values of all layers, what a thread's core keeps from pass to pass.
  CpuAttention(const RowOps& ops, ThreadPool& pool, std::int64_t near_bytes)
      : ops_(ops), pool_(pool), near_bytes_(near_bytes), scratch_(pool.size()) {}

  /// `results`: how `out` is written.
  void forward(ConstRows q, const CpuKv& kv, std::int64_t layer, const RowChain& chain,
               std::span<const std::int32_t> kv_head, float scale, Rows out, const ResultOps& results);
  /// After rotating queries and keys, and writing keys and values into the slots of `chain`. Each thread does that for the heads that it attends to, where these can be shared out evenly: no core
  /// has to have anything of another's.
  void forward_new(const NewHeads& heads, CpuKv& kv, std::int64_t layer, const RowChain& chain,
                   std::span<const std::int32_t> kv_head, float scale, Rows out, const ResultOps& results);

 private:
  /// One thread's.
  struct Scratch {
    std::vector<float> states;              ///< [queries, attention_state_size]
    std::vector<AttentionQuery> queries;    ///< of one unit
    std::vector<AttentionQuery> seeing;     ///< those of a head that see one block, as much of it as they see
    std::vector<std::int64_t> first_query;  ///< of each KV head, and behind it that of the next
    std::vector<float> gathered;            ///< a block

    void resize(std::int64_t most_queries, std::int64_t kv_heads, std::int64_t state_size);
  };
  struct Pass;
  class Unit;
  /// How a pass is shared out: KV heads to threads, each thread's in so many together, their rows in so many runs of so many.
  struct Cut {
    int threads;
    std::int64_t kv_heads;
    std::int64_t heads_together;
    std::int64_t rows;
    std::int64_t rows_per_run;
    std::int64_t runs;

    bool has_heads_for_each() const { return kv_heads % threads == 0; }
    /// Of thread `part`, where each has as many.
    Range heads(std::int64_t part) const { return {kv_heads / threads * part, kv_heads / threads * (part + 1)}; }
    Range run(std::int64_t i) const { return {i * rows_per_run, std::min(rows, (i + 1) * rows_per_run)}; }
  };

  Cut plan(const Pass& pass);
  void plan_rows(const RowChain& chain, std::int64_t head_dim);
  void attend(const Pass& pass, const Cut& cut);
  void rotate_and_append(const NewHeads& heads, CpuKv& kv, const Pass& pass, std::int64_t kv_index) const;
  /// Calls before(heads) on the thread that attends to these next.
  template <typename Before>
  void attend_heads(const Pass& pass, const Cut& cut, const Before& before);
  void gather(const Pass& pass, std::int64_t kv_index, std::int64_t row, std::int64_t block, Scratch& scratch) const;

  const RowOps& ops_;
  ThreadPool& pool_;
  std::int64_t near_bytes_;
  std::vector<Scratch> scratch_;
  // Of the current pass, per row: ancestors in the pass before it, and whether they are the rows 0, 1, ..., row - 1.
  std::vector<std::int32_t> depth_;
  std::vector<char> in_order_;
};

}  // namespace specdec
