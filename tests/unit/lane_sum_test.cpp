#include "backend/cuda/kernels/lane_sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "backend/cpu/thread_pool.h"
#include "backend/vector_math.h"
#include "tests/support/emulated_gpu.h"

namespace specdec {
namespace {

double found_by(int threads, const std::vector<float>& row) {
  double sum = -1;
  emulate(1, 1, threads, sizeof(cuda::LaneSumMemory), [&](EmulatedGpu& gpu) {
    flush_subnormals_to_zero();
    const double all = cuda::lane_sum(gpu, std::ssize(row), [&](std::int64_t i) { return row[i]; });
    if (gpu.thread() == gpu.threads() - 1) {
      sum = all;
    }
  });
  return sum;
}

void expect_the_hosts_sum(const std::vector<float>& row) {
  flush_subnormals_to_zero();
  const double expected = sum_of(row);
  for (const int threads : {32, 128}) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(found_by(threads, row)), std::bit_cast<std::uint64_t>(expected))
        << row.size() << " entries, " << threads << " threads";
  }
}

std::vector<float> row_of(std::size_t size, const std::function<float()>& entry) {
  std::vector<float> row(size);
  std::ranges::generate(row, entry);
  return row;
}

constexpr std::size_t kLaneSizes[] = {1, 15, 16, 17, 256, 1000, 20011};

class LaneSum : public ::testing::Test {
 protected:
  std::mt19937 engine_{17};
};

TEST_F(LaneSum, OfWeights) {
  std::normal_distribution<float> normal;
  for (const float spread : {1.0F, 20.0F}) {
    for (const std::size_t size : kLaneSizes) {
      expect_the_hosts_sum(row_of(size, [&] { return std::exp(-std::abs(spread * normal(engine_))); }));
    }
  }
}

/// Single bits, 2^0 to 2^-80: at a sum of 2^e every entry of 2^(e - 53) is a tie.
TEST_F(LaneSum, OfTies) {
  std::uniform_int_distribution<int> exponent(-80, 0);
  std::uniform_int_distribution<int> around_a_tie(-55, -50);
  for (const std::size_t size : kLaneSizes) {
    expect_the_hosts_sum(row_of(size, [&] { return std::ldexp(1.0F, exponent(engine_)); }));
    std::vector<float> row = row_of(size, [&] { return std::ldexp(1.0F, around_a_tie(engine_)); });
    std::fill_n(row.begin(), std::min<std::size_t>(16, size), 1.0F);
    expect_the_hosts_sum(row);
  }
}

TEST_F(LaneSum, OfSumsThatDoubleWithEachEntry) {
  std::vector<float> row;
  for (int i = -60; i <= 0; ++i) {
    row.insert(row.end(), 16, std::ldexp(1.0F, i) * (1.0F + 0x1p-23F));
  }
  expect_the_hosts_sum(row);
}

TEST_F(LaneSum, OfFewEntries) {
  expect_the_hosts_sum(std::vector<float>(5000));
  std::uniform_int_distribution<int> one_in(0, 300);
  for (int i = 0; i < 5; ++i) {
    expect_the_hosts_sum(row_of(9000, [&] { return one_in(engine_) == 0 ? 1.0F / 3 : 0.0F; }));
  }
}

/// Up to the largest double below a power of two, onto it, and past it.
TEST_F(LaneSum, AtTheEdgeOfARange) {
  for (const float last : {0x1p-53F, 0x1.8p-53F, 0x1p-52F, 0x1.4p-52F, 0x1p-51F}) {
    std::vector<float> row(16 * 40);
    row[0] = 1.0F;
    row[16] = 1.0F - 0x1p-24F;
    row[32] = 0x1p-24F - 0x1p-48F;
    row[48] = 0x1p-48F - 0x1p-52F;  // 2 - 2^-52
    row[16 * 20] = 0x1p-52F;
    row[16 * 21] = last;
    row[16 * 36] = 0x1p-52F;
    expect_the_hosts_sum(row);
  }
}

}  // namespace
}  // namespace specdec
