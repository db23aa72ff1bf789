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

/// Queries whose states one thread walks the blocks with; more rows go through in several runs.
constexpr std::int64_t kQueriesPerUnit = 64;

/// For each thread that takes part, either of both: a round of threads takes about a microsecond. A draft's one row has few multiply-adds, and waits for what it reads.
constexpr std::int64_t kMultiplyAddsPerThread = 1 << 15;
constexpr std::int64_t kKeysAndValuesPerThread = std::int64_t{48} << 10;  // bytes
/// Each has so many times as much before any on far cores take part.
constexpr std::int64_t kFarTimes = 2;

int threads_sharing(std::int64_t multiply_adds, std::int64_t bytes, const ThreadPool& pool) {
  const std::int64_t worth = std::max(multiply_adds / kMultiplyAddsPerThread, bytes / kKeysAndValuesPerThread);
  return pool.sharing(worth, worth / kFarTimes);
}

}  // namespace

void CpuAttention::Scratch::resize(std::int64_t most_queries, std::int64_t kv_heads, std::int64_t state_size) {
  const auto grow = [](auto& of, std::int64_t size) {
    if (static_cast<std::int64_t>(of.size()) < size) of.resize(size);
  };
  grow(queries, most_queries);
  grow(seeing, most_queries);
  grow(states, most_queries * state_size);
  grow(first_query, kv_heads + 1);
}

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

  // A KV head has heads / kv_heads queries a row on average.
  const std::int64_t most_rows = std::max<std::int64_t>(1, kQueriesPerUnit * kv_heads / heads);
  const std::int64_t of_head = (pass.chain.first_slot + rows) * dim;
  const std::int64_t bytes = 2 * kv_heads * of_head * static_cast<std::int64_t>(sizeof(float));
  const int threads = threads_sharing(rows * heads * of_head, bytes, pool_);
  const std::int64_t runs_wanted = (threads + kv_heads - 1) / kv_heads;
  const std::int64_t rows_per_run = std::min(most_rows, (rows + runs_wanted - 1) / runs_wanted);
  // Heads lie behind one another in the cache, blocks of a head do not: what has to come from afar is quicker in the order of memory. Threads on far cores have a last cache each.
  const bool is_near = bytes * pass.kv.shape().layers <= near_bytes_ * threads || pool_.is_far();
  const std::int64_t heads_together =
      is_near ? 1 : std::clamp<std::int64_t>(kQueriesPerUnit * kv_heads / (heads * rows_per_run), 1, kv_heads);
  for (Scratch& scratch : scratch_) {
    scratch.resize(rows_per_run * heads, kv_heads, attention_state_size(dim));
  }
  return {.threads = threads,
          .kv_heads = kv_heads,
          .heads_together = heads_together,
          .rows = rows,
          .rows_per_run = rows_per_run,
          .runs = (rows + rows_per_run - 1) / rows_per_run};
}

/// Some heads of keys and values, and the queries of a run of rows that read them, on their way through the blocks of one thread.
class CpuAttention::Unit {
 public:
  Unit(const CpuAttention& attention, const Pass& pass, Range kv_heads, Range rows, Scratch& scratch)
      : attention_(attention), pass_(pass), kv_heads_(kv_heads), rows_(rows), scratch_(scratch) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      most_keys_ = std::max(most_keys_, keys_of(row));
    }
    std::int64_t count = 0;
    for (std::int64_t kv_head = kv_heads.begin; kv_head < kv_heads.end; ++kv_head) {
      scratch.first_query[kv_head] = count;
      for_queries(kv_head, [&](std::int64_t row, std::int64_t head) {
        float* state = scratch.states.data() + count * attention_state_size(dim());
        attention_.ops_.attention_begin(state, dim());
        scratch.queries[count++] = {pass.q.row(row) + head * dim(), state, kKeyBlock};
      });
    }
    scratch.first_query[kv_heads.end] = count;
  }

  /// A block of all heads before the next one.
  void run() {
    const std::int64_t blocks = (most_keys_ + kKeyBlock - 1) / kKeyBlock;
    // Of those that end before the pass every query sees all.
    const std::int64_t whole = pass_.chain.first_slot / kKeyBlock;
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (std::int64_t kv_head = kv_heads_.begin; kv_head < kv_heads_.end; ++kv_head) {
        if (block < whole) {
          attend_cached(kv_head, block, queries_of(kv_head));
        } else {
          attend_partly(kv_head, block);
        }
        if (block + 1 == blocks) end(kv_head);
      }
    }
  }

 private:
  std::int64_t dim() const { return pass_.head_dim(); }
  std::int64_t keys_of(std::int64_t row) const { return pass_.chain.first_slot + attention_.depth_[row] + 1; }

  /// The order of queries: of each KV head all rows, of each row the query heads that read it.
  template <typename Visit>
  void for_queries(std::int64_t kv_head, const Visit& visit) const {
    const auto heads = static_cast<std::int64_t>(pass_.kv_head.size());
    for (std::int64_t row = rows_.begin; row < rows_.end; ++row) {
      for (std::int64_t head = 0; head < heads; ++head) {
        if (pass_.kv_head[head] == kv_head) visit(row, head);
      }
    }
  }
  std::span<const AttentionQuery> queries_of(std::int64_t kv_head) const {
    const std::int64_t first = scratch_.first_query[kv_head];
    return std::span(scratch_.queries).subspan(first, scratch_.first_query[kv_head + 1] - first);
  }

  void attend(const AttentionBlock& block, std::span<const AttentionQuery> queries) const {
    attention_.ops_.attention_block(block, pass_.scale, queries.data(), static_cast<std::int64_t>(queries.size()));
  }

  void attend_cached(std::int64_t kv_head, std::int64_t block, std::span<const AttentionQuery> queries) const {
    std::int64_t next_head = kv_head + 1;
    std::int64_t next_block = block;
    if (next_head == kv_heads_.end && ++next_block * kKeyBlock < most_keys_) {
      next_head = kv_heads_.begin;
    } else if (next_head == kv_heads_.end) {
      next_head = std::min(next_head, pass_.kv.shape().kv_heads - 1);
      next_block = 0;
    }
    attend({.keys = pass_.kv.keys(pass_.layer, kv_head, block),
            .next = pass_.kv.keys(pass_.layer, next_head, next_block),
            .is_first = block == 0 && kv_head == kv_heads_.begin,
            .head_dim = dim()},
           queries);
  }

  /// First the queries that read the block as it lies in the cache.
  void attend_partly(std::int64_t kv_head, std::int64_t block) {
    std::int64_t seeing = 0;
    for (std::int64_t row = rows_.begin; row < rows_.end; ++row) {
      if (attention_.in_order_[row] == 1) seeing = add_seeing(kv_head, row, block, seeing);
    }
    if (seeing > 0) {
      attend_cached(kv_head, block, std::span(scratch_.seeing).first(seeing));
    }
    for (std::int64_t row = rows_.begin; row < rows_.end; ++row) {
      if (attention_.in_order_[row] == 1) continue;
      seeing = add_seeing(kv_head, row, block, 0);
      if (seeing == 0) continue;
      attention_.gather(pass_, kv_head, row, block, scratch_);
      const float* gathered = scratch_.gathered.data();
      attend({.keys = gathered, .next = gathered, .is_first = false, .head_dim = dim()},
             std::span(scratch_.seeing).first(seeing));
    }
  }
  /// Adds a row's queries to the first `count` that see the block, if they do; returns how many there are then.
  std::int64_t add_seeing(std::int64_t kv_head, std::int64_t row, std::int64_t block, std::int64_t count) {
    const std::int64_t visible = std::min(kKeyBlock, keys_of(row) - block * kKeyBlock);
    if (visible <= 0) return count;
    const std::span<const AttentionQuery> queries = queries_of(kv_head);
    const std::size_t of_row = queries.size() / rows_.size();
    for (const AttentionQuery& query : queries.subspan((row - rows_.begin) * of_row, of_row)) {
      scratch_.seeing[count++] = {query.q, query.state, visible};
    }
    return count;
  }

  void end(std::int64_t kv_head) const {
    const AttentionQuery* query = queries_of(kv_head).data();
    for_queries(kv_head, [&](std::int64_t row, std::int64_t head) {
      pass_.results.attention_end((query++)->state, dim(), pass_.out.row(row) + head * dim());
    });
  }

  const CpuAttention& attention_;
  const Pass& pass_;
  Range kv_heads_;
  Range rows_;
  Scratch& scratch_;
  std::int64_t most_keys_ = 0;
};

void CpuAttention::forward(ConstRows q, const CpuKv& kv, std::int64_t layer, const RowChain& chain,
                           std::span<const std::int32_t> kv_head, float scale, Rows out, const ResultOps& results) {
  if (chain.rows() == 0 || kv_head.empty()) {
    return;
  }
  const Pass pass{q, kv, layer, chain, kv_head, scale, out, results};
  attend(pass, plan(pass));
}

void CpuAttention::attend(const Pass& pass, const Cut& cut) {
  if (cut.has_heads_for_each()) {
    attend_heads(pass, cut, [](Range) {});
    return;
  }
  parallel_for(pool_, cut.threads, cut.kv_heads * cut.runs, [=, this](int thread, std::int64_t unit) {
    const std::int64_t head = unit / cut.runs;
    Unit(*this, pass, {head, head + 1}, cut.run(unit % cut.runs), scratch_[thread]).run();
  });
}

template <typename Before>
void CpuAttention::attend_heads(const Pass& pass, const Cut& cut, const Before& before) {
  parallel_for(pool_, cut.threads, cut.threads, [=, this](int thread, std::int64_t part) {
    Range heads = cut.heads(part);
    for (Range together; heads.begin < heads.end; heads.begin = together.end) {
      together = {heads.begin, std::min(heads.end, heads.begin + cut.heads_together)};
      before(together);
      for (std::int64_t run = 0; run < cut.runs; ++run) {
        Unit(*this, pass, together, cut.run(run), scratch_[thread]).run();
      }
    }
  });
}

void CpuAttention::forward_new(const NewHeads& heads, CpuKv& kv, std::int64_t layer, const RowChain& chain,
                               std::span<const std::int32_t> kv_head, float scale, Rows out, const ResultOps& results) {
  if (chain.rows() == 0 || kv_head.empty()) {
    return;
  }
  const Pass pass{heads.query, kv, layer, chain, kv_head, scale, out, results};
  const Cut cut = plan(pass);
  if (!cut.has_heads_for_each()) {
    parallel_for(pool_, cut.threads, cut.kv_heads,
                 [=, this, &kv](int, std::int64_t head) { rotate_and_append(heads, kv, pass, head); });
    attend(pass, cut);
    return;
  }
  attend_heads(pass, cut, [=, this, &kv](Range together) {
    for (std::int64_t head = together.begin; head < together.end; ++head) {
      rotate_and_append(heads, kv, pass, head);
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
