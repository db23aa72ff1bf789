// How many threads take part in attention: as many as have products or bytes that are worth a round of threads. What it asks for.
#include "backend/cpu/cpu_attention.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "backend/cpu/isa.h"

namespace specdec {
namespace {

std::mutex attending_mutex;
std::set<std::thread::id> attending;

void begin_and_be_seen(float* state, std::int64_t head_dim) {
  {
    const std::lock_guard lock(attending_mutex);
    attending.insert(std::this_thread::get_id());
  }
  row_ops(Isa::kScalar).attention_begin(state, head_dim);
}

/// `rows` rows of `heads` heads, each with keys of its own of 32 components, after `committed` tokens.
void attend(CpuAttention& attention, std::int64_t rows, std::int64_t heads, std::int64_t committed) {
  constexpr std::int64_t kHeadDim = 32;
  const CpuKv kv({1, heads, kHeadDim, committed + rows});
  std::vector<std::int32_t> order(static_cast<std::size_t>(rows));
  std::vector<std::int32_t> parent(order.size());
  std::iota(order.begin(), order.end(), 0);
  std::iota(parent.begin(), parent.end(), -1);
  std::vector<std::int32_t> kv_head(static_cast<std::size_t>(heads));
  std::iota(kv_head.begin(), kv_head.end(), 0);
  const std::int64_t cols = heads * kHeadDim;
  std::vector<float> q(static_cast<std::size_t>(rows * cols), 1.0F);
  std::vector<float> out(q.size());
  attention.forward({q.data(), rows, cols, cols}, kv, 0, {order, parent, committed}, kv_head, 1.0F,
                    {out.data(), rows, cols, cols}, row_ops(Isa::kScalar).kept);
}

/// Of a pool of four, those that attend.
std::size_t threads_of(std::int64_t rows, std::int64_t heads, std::int64_t committed) {
  RowOps ops = row_ops(Isa::kScalar);
  ops.attention_begin = &begin_and_be_seen;
  ThreadPool pool(4);
  CpuAttention attention(ops, pool);
  attending.clear();
  attend(attention, rows, heads, committed);
  return attending.size();
}

std::vector<AttentionBlock> noted_blocks;

void note_block(const AttentionBlock& block, float scale, const AttentionQuery* queries, std::int64_t count) {
  noted_blocks.push_back(block);
  row_ops(Isa::kScalar).attention_block(block, scale, queries, count);
}

TEST(CpuAttention, AsksForTheBlockThatItTakesNext) {
  RowOps ops = row_ops(Isa::kScalar);
  ops.attention_block = &note_block;
  ThreadPool pool(1);
  CpuAttention attention(ops, pool);
  for (const std::int64_t committed : {0, 62, 64, 200}) {
    noted_blocks.clear();
    constexpr std::int64_t kHeads = 3;
    attend(attention, 2, kHeads, committed);
    const auto of_head = static_cast<std::size_t>((committed + 2 + kKeyBlock - 1) / kKeyBlock);
    ASSERT_EQ(noted_blocks.size(), kHeads * of_head);
    for (std::size_t i = 0; i < noted_blocks.size(); ++i) {
      EXPECT_EQ(noted_blocks[i].is_first, i % of_head == 0) << committed << " tokens, block " << i;
      if (i + 1 < noted_blocks.size()) {
        EXPECT_EQ(noted_blocks[i].next, noted_blocks[i + 1].keys) << committed << " tokens, block " << i;
      }
    }
  }
}

TEST(CpuAttention, OneRowIsSharedByWhatItReads) {
  // 8 heads of 32 components: 2 KB of keys and values a token.
  EXPECT_EQ(threads_of(1, 8, 31), 1U) << "64 KB";
  EXPECT_EQ(threads_of(1, 8, 47), 2U) << "96 KB, 12288 multiply-adds";
  EXPECT_EQ(threads_of(1, 8, 127), 4U) << "256 KB, 32768 multiply-adds";
}

TEST(CpuAttention, SeveralRowsAreSharedByTheirProducts) {
  EXPECT_EQ(threads_of(8, 8, 8), 1U) << "32 KB, 32768 multiply-adds";
  EXPECT_EQ(threads_of(16, 8, 0), 2U) << "32 KB, 65536 multiply-adds";
}

}  // namespace
}  // namespace specdec
