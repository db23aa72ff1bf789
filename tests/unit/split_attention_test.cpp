#include <gtest/gtest.h>

#include <cstdint>

#include "backend/cuda/kernels/split_attention_kernel.h"

/// What the kernels of split attention are launched with. Their bits: GpuBackendTest.*Attention*.
namespace specdec::cuda {
namespace {

template <int kQueries>
void expect_shapes_that_fit() {
  for (const std::int64_t dim : {8, 64, 80, 128, 256}) {
    for (const std::int64_t key_blocks : {1, 16, 100, 128, 4096}) {
      for (std::int64_t queries = 1; queries <= 600; ++queries) {
        const SplitShape scores = scores_shape<kQueries>(queries, key_blocks, dim);
        const SplitShape values = values_shape<kQueries>(scores, dim);
        SCOPED_TRACE(testing::Message() << queries << " queries, " << key_blocks << " key blocks, heads of " << dim);
        ASSERT_EQ(scores.tile, scores.groups * kQueries);
        ASSERT_GE(scores.tiles * scores.tile, queries);
        ASSERT_LT((scores.tiles - 1) * scores.tile, queries) << "a tile without queries";
        ASSERT_LT(scores.tiles * (scores.groups - 1) * kQueries, queries) << "fewer groups would do";
        ASSERT_EQ(values.tile, scores.tile);
        ASSERT_EQ(values.tiles, scores.tiles);
        for (const SplitShape& shape : {scores, values}) {
          ASSERT_LE(shape.threads(), 512);
          ASSERT_LE(shape.shared_bytes(dim), kSplitMemory);
        }
        ASSERT_TRUE(scores.groups == 1 || scores.tiles * key_blocks >= kEnoughBlocks) << "multiprocessors are idle";
      }
    }
  }
}

TEST(SplitAttention, BlocksOfThreadsHaveQueriesAndFit) {
  expect_shapes_that_fit<2>();
  expect_shapes_that_fit<4>();
  expect_shapes_that_fit<8>();
}

TEST(SplitAttention, FewQueriesKeepThreadsBusyAndManyShareWhatIsRead) {
  EXPECT_EQ(queries_of_thread(4, 16), 2);    // a row of Llama 3 8B over 128 tokens
  EXPECT_EQ(queries_of_thread(20, 64), 2);   // five over 500
  EXPECT_EQ(queries_of_thread(36, 64), 4);   // nine
  EXPECT_EQ(queries_of_thread(4, 1024), 2);  // over 8192
  EXPECT_EQ(queries_of_thread(20, 1024), 4);
  EXPECT_EQ(queries_of_thread(36, 1024), 8);
}

TEST(SplitAttention, WideHeadsAreSplitAsLongAsABlockOfKeysFits) {
  EXPECT_EQ(key_blocks_together(64), kKeyBlocksAtOnce);
  EXPECT_EQ(key_blocks_together(128), 1);
  EXPECT_TRUE(can_be_split(256));
  EXPECT_FALSE(can_be_split(512));
}

}  // namespace
}  // namespace specdec::cuda
