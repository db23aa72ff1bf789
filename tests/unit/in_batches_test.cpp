#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "backend/cuda/kernels/device.h"

namespace specdec {
namespace {

template <int kLoads>
std::vector<int> visited(int count) {
  std::vector<int> order;
  cuda::in_batches<kLoads>(
      count, [](int i) { return 10 * i; },
      [&](int i, int loaded) {
        EXPECT_EQ(loaded, 10 * i);
        order.push_back(i);
      });
  return order;
}

TEST(InBatches, EveryItemComesOnceAndInOrder) {
  for (int count = 0; count <= 70; ++count) {
    std::vector<int> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(visited<32>(count), all);
    EXPECT_EQ(visited<8>(count), all);
    EXPECT_EQ(visited<6>(count), all);
    EXPECT_EQ(visited<1>(count), all);
  }
}

TEST(LoadOrZero, NothingIsReadBehindTheCount) {
  for (int count = 0; count <= 7; ++count) {
    float loaded[5];
    cuda::load_or_zero(loaded, count, [&](int i) {
      EXPECT_LT(i, count);
      return static_cast<float>(i + 1);
    });
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(loaded[i], i < count ? static_cast<float>(i + 1) : 0.0F) << i << " of " << count;
    }
  }
}

TEST(InBatches, SharesAreAllThatThereIs) {
  for (int count = 0; count <= 20; ++count) {
    int dealt = 0;
    for (int thread = 0; thread < 6; ++thread) {
      const int share = cuda::share_of(count, thread, 6);
      EXPECT_TRUE(share == 0 || thread + (share - 1) * 6 < count);
      EXPECT_GE(thread + share * 6, count);
      dealt += share;
    }
    EXPECT_EQ(dealt, count);
  }
}

}  // namespace
}  // namespace specdec
