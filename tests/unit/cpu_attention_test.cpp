// How many threads take part in attention: as many as have products or bytes that are worth a round of threads. In which order it takes blocks, and what it asks for.
#include "backend/cpu/cpu_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/isa.h"
#include "tests/support/all_isas.h"
#include "tests/unit/backend_fixture.h"

namespace specdec {
namespace {

constexpr std::int64_t kAllNear = std::int64_t{1} << 40;
constexpr std::int64_t kAllFar = 0;

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
std::size_t threads_of(std::int64_t rows, std::int64_t heads, std::int64_t committed, int near = 4) {
  RowOps ops = row_ops(Isa::kScalar);
  ops.attention_begin = &begin_and_be_seen;
  ThreadPool pool(4);
  pool.set_near_threads(near);
  CpuAttention attention(ops, pool, kAllNear);
  attending.clear();
  attend(attention, rows, heads, committed);
  return attending.size();
}

std::vector<AttentionBlock> noted_blocks;

void note_block(const AttentionBlock& block, float scale, const AttentionQuery* queries, std::int64_t count) {
  noted_blocks.push_back(block);
  row_ops(Isa::kScalar).attention_block(block, scale, queries, count);
}

/// The blocks that one thread takes, `committed` tokens before two rows of three heads.
std::vector<AttentionBlock> blocks_taken(std::int64_t committed, std::int64_t near_bytes) {
  RowOps ops = row_ops(Isa::kScalar);
  ops.attention_block = &note_block;
  ThreadPool pool(1);
  CpuAttention attention(ops, pool, near_bytes);
  noted_blocks.clear();
  attend(attention, 2, 3, committed);
  return std::exchange(noted_blocks, {});
}

TEST(CpuAttention, AsksForTheBlockThatItTakesNext) {
  for (const std::int64_t near_bytes : {kAllNear, kAllFar}) {
    for (const std::int64_t committed : {0, 62, 64, 200}) {
      const std::vector<AttentionBlock> blocks = blocks_taken(committed, near_bytes);
      const auto of_head = static_cast<std::size_t>((committed + 2 + kKeyBlock - 1) / kKeyBlock);
      ASSERT_EQ(blocks.size(), 3 * of_head);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        const bool is_first = near_bytes == kAllFar ? i == 0 : i % of_head == 0;
        EXPECT_EQ(blocks[i].is_first, is_first) << committed << " tokens, block " << i;
        if (i + 1 < blocks.size()) {
          EXPECT_EQ(blocks[i].next, blocks[i + 1].keys) << committed << " tokens, block " << i;
        }
      }
    }
  }
}

TEST(CpuAttention, WhatComesFromAfarIsReadInTheOrderOfMemory) {
  const std::vector<AttentionBlock> blocks = blocks_taken(200, kAllFar);
  for (std::size_t i = 0; i + 1 < blocks.size(); ++i) {
    EXPECT_LT(blocks[i].keys, blocks[i + 1].keys) << "block " << i;
  }
}

struct Tokens {
  const char* name;
  std::vector<std::int32_t> parent;
  std::int64_t committed;
};

/// What two threads make of 12 query heads, each three of which share keys of 24 components; with keys and values that are there, or that the pass rotates and appends.
std::vector<float> attended(Isa isa, const Tokens& tokens, bool is_new, std::int64_t near_bytes) {
  constexpr std::int64_t kHeads = 12;
  constexpr std::int64_t kKvHeads = 4;
  constexpr std::int64_t kHeadDim = 24;
  const auto rows = static_cast<std::int64_t>(tokens.parent.size());
  const std::int64_t slots = tokens.committed + rows;
  CpuKv kv({1, kKvHeads, kHeadDim, slots});
  kv.append(0, 0, Matrix::random(slots, kKvHeads * kHeadDim, 1).view(),
            Matrix::random(slots, kKvHeads * kHeadDim, 2).view());
  std::vector<std::int32_t> kv_head(static_cast<std::size_t>(kHeads));
  std::ranges::generate(kv_head, [head = 0]() mutable { return head++ / 3; });
  Matrix q = Matrix::random(rows, kHeads * kHeadDim, 3);
  Matrix out(rows, kHeads * kHeadDim);
  const std::vector<std::int32_t> position(tokens.parent.size());
  const RowChain chain = {position, tokens.parent, tokens.committed};
  ThreadPool pool(2);
  const RowOps& ops = row_ops(isa);
  CpuAttention attention(ops, pool, near_bytes);
  if (is_new) {
    Matrix keys = Matrix::random(rows, kKvHeads * kHeadDim, 4);
    const Matrix values = Matrix::random(rows, kKvHeads * kHeadDim, 5);
    const Matrix cos = Matrix::random(1, kHeadDim / 2, 6);
    const Matrix sin = Matrix::random(1, kHeadDim / 2, 7);
    attention.forward_new({q.view(), keys.view(), values.view(), cos.data(), sin.data()}, kv, 0, chain, kv_head, 0.2F,
                          out.view(), ops.kept);
  } else {
    attention.forward(q.view(), kv, 0, chain, kv_head, 0.2F, out.view(), ops.kept);
  }
  return out.all();
}

TEST(CpuAttention, BothOrdersOfBlocksGiveTheSameBits) {
  const std::vector<std::int32_t> chain = {-1, 0, 1, 2, 3};
  const std::vector<std::int32_t> tree = {-1, 0, 0, 1, 2};
  for (const Isa isa : all_isas()) {
    for (const Tokens& tokens : {Tokens{"a row", {-1}, 130}, Tokens{"a chain", chain, 126}, Tokens{"a chain", chain, 0},
                                 Tokens{"a tree", tree, 62}, Tokens{"a tree", tree, 190}}) {
      for (const bool is_new : {false, true}) {
        EXPECT_EQ(attended(isa, tokens, is_new, kAllNear), attended(isa, tokens, is_new, kAllFar))
            << name_of(isa) << ", " << tokens.name << " after " << tokens.committed << (is_new ? ", new" : "");
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

TEST(CpuAttention, WithFarCoresEachHasTwiceAsMuch) {
  EXPECT_EQ(threads_of(1, 8, 47, 1), 1U) << "96 KB";
  EXPECT_EQ(threads_of(1, 8, 127, 1), 2U) << "256 KB";
  EXPECT_EQ(threads_of(16, 8, 0, 1), 1U) << "65536 multiply-adds";
  EXPECT_EQ(threads_of(1, 8, 127, 3), 3U) << "those that are near, as without others";
}

TEST(CpuAttention, SeveralRowsAreSharedByTheirProducts) {
  EXPECT_EQ(threads_of(8, 8, 8), 1U) << "32 KB, 32768 multiply-adds";
  EXPECT_EQ(threads_of(16, 8, 0), 2U) << "32 KB, 65536 multiply-adds";
}

}  // namespace
}  // namespace specdec
