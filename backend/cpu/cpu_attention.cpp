#include "backend/cpu/cpu_attention.h"

#include <algorithm>

#include "backend/cpu/parallel_for.h"
#include "backend/row_chain.h"

namespace specdec {

struct CpuAttention::Pass {
  ConstRows q;
  const CpuKv& kv;
  std::int64_t layer;
  const RowChain& chain;
  std::span<const std::int32_t> kv_head;
  float scale;
  Rows out;
  const ResultOps& results;

  std::int64_t head_dim() const { return kv.shape().head_dim; }
};

namespace {

/// Queries whose states one thread walks the keys with; more rows go through in several runs.
constexpr std::int64_t kQueriesPerUnit = 64;

/// For each thread that takes part, either of both: a round of threads takes about a microsecond. A draft's one row has few multiply-adds, and waits for what it reads.
constexpr std::int64_t kMultiplyAddsPerThread = 1 << 15;
constexpr std::int64_t kKeysAndValuesPerThread = std::int64_t{48} << 10;  // bytes

int threads_sharing(std::int64_t multiply_adds, std::int64_t bytes, const ThreadPool& pool) {
  const std::int64_t worth = std::max(multiply_adds / kMultiplyAddsPerThread, bytes / kKeysAndValuesPerThread);
  return static_cast<int>(std::clamp<std::int64_t>(worth, 1, pool.size()));
}

}  // namespace

void CpuAttention::plan_rows(const RowChain& chain, std::int64_t head_dim) {
  const std::int64_t rows = chain.rows();
  find_depths(chain, depth_);
  in_order_.resize(rows);
  bool all_in_order = true;
  for (std::int64_t r = 0; r < rows; ++r) {
    in_order_[r] = depth_[r] == r ? 1 : 0;
    all_in_order = all_in_order && in_order_[r] == 1;
  }
  if (!all_in_order) {
    for (Scratch& scratch : scratch_) {
      scratch.gathered.resize(key_block_size(head_dim));
    }
  }
}

CpuAttention::Cut CpuAttention::plan(const Pass& pass) {
  const std::int64_t rows = pass.chain.rows();
  const auto heads = static_cast<std::int64_t>(pass.kv_head.size());
  const std::int64_t kv_heads = pass.kv.shape().kv_heads;
  const std::int64_t dim = pass.head_dim();
  plan_rows(pass.chain, dim);

  // A unit has heads / kv_heads queries a row on average.
  const std::int64_t most_rows = std::max<std::int64_t>(1, kQueriesPerUnit * kv_heads / heads);
  const std::int64_t of_head = (pass.chain.first_slot + rows) * dim;
  const std::int64_t bytes = 2 * kv_heads * of_head * static_cast<std::int64_t>(sizeof(float));
  const int threads = threads_sharing(rows * heads * of_head, bytes, pool_);
  const std::int64_t runs_wanted = (threads + kv_heads - 1) / kv_heads;
  const std::int64_t rows_per_run = std::min(most_rows, (rows + runs_wanted - 1) / runs_wanted);
  for (Scratch& scratch : scratch_) {
    // One KV head may be read by all query heads of a row.
    const std::int64_t queries = rows_per_run * heads;
    if (static_cast<std::int64_t>(scratch.queries.size()) < queries) {
      scratch.queries.resize(queries);
    }
    const std::int64_t floats = queries * attention_state_size(dim);
    if (static_cast<std::int64_t>(scratch.states.size()) < floats) {
      scratch.states.resize(floats);
    }
  }
  return {threads, rows, rows_per_run, (rows + rows_per_run - 1) / rows_per_run};
}

void CpuAttention::forward(ConstRows q, const CpuKv& kv, std::int64_t layer, const RowChain& chain,
                           std::span<const std::int32_t> kv_head, float scale, Rows out, const ResultOps& results) {
  if (chain.rows() == 0 || kv_head.empty()) {
    return;
  }
  const Pass pass{q, kv, layer, chain, kv_head, scale, out, results};
  attend(pass, plan(pass));
}

void CpuAttention::attend(const Pass& pass, const Cut& cut) {
  parallel_for(pool_, cut.threads, pass.kv.shape().kv_heads * cut.runs, [=, this](int thread, std::int64_t unit) {
    run_unit(pass, unit / cut.runs, cut.run(unit % cut.runs), scratch_[thread]);
  });
}

void CpuAttention::forward_new(const NewHeads& heads, CpuKv& kv, std::int64_t layer, const RowChain& chain,
                               std::span<const std::int32_t> kv_head, float scale, Rows out, const ResultOps& results) {
  if (chain.rows() == 0 || kv_head.empty()) {
    return;
  }
  const Pass pass{heads.query, kv, layer, chain, kv_head, scale, out, results};
  const Cut cut = plan(pass);
  const std::int64_t kv_heads = kv.shape().kv_heads;
  if (kv_heads % cut.threads != 0) {
    parallel_for(pool_, cut.threads, kv_heads,
                 [=, this, &kv](int, std::int64_t head) { rotate_and_append(heads, kv, pass, head); });
    attend(pass, cut);
    return;
  }
  parallel_for(pool_, cut.threads, kv_heads, [=, this, &kv](int thread, std::int64_t head) {
    rotate_and_append(heads, kv, pass, head);
    for (std::int64_t run = 0; run < cut.runs; ++run) {
      run_unit(pass, head, cut.run(run), scratch_[thread]);
    }
  });
}

void CpuAttention::rotate_and_append(const NewHeads& heads, CpuKv& kv, const Pass& pass, std::int64_t kv_index) const {
  const std::int64_t dim = pass.head_dim();
  const auto rotate = [&](Rows x, Range range) {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      const std::int64_t table = pass.chain.position[r] * (dim / 2);
      ops_.rope(x.row(r) + range.begin * dim, range.size(), dim, heads.cos + table, heads.sin + table);
    }
  };
  const auto queries = static_cast<std::int64_t>(pass.kv_head.size());
  for (Range range; range.begin < queries; range.begin = range.end) {
    range.end = range.begin + 1;
    if (pass.kv_head[range.begin] != kv_index) continue;
    while (range.end < queries && pass.kv_head[range.end] == kv_index) ++range.end;
    rotate(heads.query, range);
  }
  const Range own{kv_index, kv_index + 1};
  rotate(heads.keys, own);
  kv.append_keys(pass.layer, pass.chain.first_slot, heads.keys, own);
  kv.append_values(pass.layer, pass.chain.first_slot, heads.values, own);
}

void CpuAttention::run_unit(const Pass& pass, std::int64_t kv_index, Range rows, Scratch& scratch) const {
  const std::int64_t dim = pass.head_dim();
  const std::int64_t state_size = attention_state_size(dim);
  const std::int64_t first_slot = pass.chain.first_slot;
  const auto heads = static_cast<std::int64_t>(pass.kv_head.size());

  // Calls visit(head, state) for the query heads of this unit, in the same order for every row and block.
  const auto for_heads = [&](std::int64_t row, auto visit) {
    float* state = scratch.states.data() + (row - rows.begin) * heads * state_size;
    for (std::int64_t head = 0; head < heads; ++head) {
      if (pass.kv_head[head] == kv_index) {
        visit(head, state);
        state += state_size;
      }
    }
  };

  const auto add_row = [&](std::int64_t row, std::int64_t visible, std::int64_t& count) {
    for_heads(row, [&](std::int64_t head, float* state) {
      scratch.queries[count++] = {pass.q.row(row) + head * dim, state, visible};
    });
  };
  const auto attend = [&](const float* keys, const float* next, bool is_first, std::int64_t count) {
    ops_.attention_block({.keys = keys, .next = next, .is_first = is_first, .head_dim = dim}, pass.scale,
                         scratch.queries.data(), count);
  };
  std::int64_t most_keys = 0;
  const auto attend_cached = [&](std::int64_t block, std::int64_t count) {
    const bool last = (block + 1) * kKeyBlock >= most_keys;
    // A thread takes heads in their order.
    const std::int64_t next_head = std::min(kv_index + (last ? 1 : 0), pass.kv.shape().kv_heads - 1);
    attend(pass.kv.keys(pass.layer, kv_index, block), pass.kv.keys(pass.layer, next_head, last ? 0 : block + 1),
           block == 0, count);
  };

  std::int64_t all = 0;
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    for_heads(r, [&](std::int64_t, float* state) { ops_.attention_begin(state, dim); });
    add_row(r, kKeyBlock, all);
    most_keys = std::max(most_keys, first_slot + depth_[r] + 1);
  }
  // The blocks that end before the pass: every query sees them whole.
  const std::int64_t whole = first_slot / kKeyBlock;
  for (std::int64_t block = 0; block < whole; ++block) {
    attend_cached(block, all);
  }

  for (std::int64_t block = whole; block * kKeyBlock < most_keys; ++block) {
    const auto visible = [&](std::int64_t row) {
      return std::min(kKeyBlock, first_slot + depth_[row] + 1 - block * kKeyBlock);
    };
    std::int64_t shared = 0;  // queries that read the block as it lies in the cache
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      if (visible(r) > 0 && in_order_[r] == 1) {
        add_row(r, visible(r), shared);
      }
    }
    if (shared > 0) {
      attend_cached(block, shared);
    }
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      if (visible(r) > 0 && in_order_[r] == 0) {
        std::int64_t own = 0;
        gather(pass, kv_index, r, block, scratch);
        add_row(r, visible(r), own);
        attend(scratch.gathered.data(), scratch.gathered.data(), false, own);
      }
    }
  }

  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    for_heads(r, [&](std::int64_t head, const float* state) {
      pass.results.attention_end(state, dim, pass.out.row(r) + head * dim);
    });
  }
}

void CpuAttention::gather(const Pass& pass, std::int64_t kv_index, std::int64_t row, std::int64_t block,
                          Scratch& scratch) const {
  const std::int64_t dim = pass.head_dim();
  const std::int64_t padded = padded_head_dim(dim);
  const std::int64_t first_slot = pass.chain.first_slot;
  const std::int64_t begin = block * kKeyBlock;

  const auto copy_slot = [&](std::int64_t from, std::int64_t place) {
    const float* keys = pass.kv.keys(pass.layer, kv_index, from / kKeyBlock) + from % kKeyBlock;
    for (std::int64_t i = 0; i < dim; ++i) {
      scratch.gathered[i * kKeyBlock + place] = keys[i * kKeyBlock];
    }
    std::copy_n(pass.kv.values(pass.layer, kv_index, from / kKeyBlock) + from % kKeyBlock * padded, padded,
                scratch.gathered.data() + dim * kKeyBlock + place * padded);
  };
  for (std::int64_t slot = begin; slot < std::min(first_slot, begin + kKeyBlock); ++slot) {
    copy_slot(slot, slot - begin);
  }
  for (std::int64_t r = row; r >= 0; r = pass.chain.parent[r]) {
    const std::int64_t place = first_slot + depth_[r] - begin;
    if (0 <= place && place < kKeyBlock) {
      copy_slot(first_slot + r, place);
    }
  }
}

}  // namespace specdec
