#include "parallel/crafted_payload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "parallel/all_reduce_bench.h"
#include "parallel/decode_bench.h"
#include "parallel/thread_communicator.h"
#include "parallel/tree.h"
#include "tests/support/forwarding_communicator.h"

namespace specdec {
namespace {

float value_of(float element) { return element; }
float value_of(BF16 element) { return bf16_to_float(element.bits); }

template <typename T>
class CraftedPayload : public ::testing::Test {};
using Types = ::testing::Types<float, BF16>;
TYPED_TEST_SUITE(CraftedPayload, Types);

constexpr std::size_t kElements = 10'000;  // more than two periods

/// Adds up what all ranks give, rank by rank, in T's own arithmetic.
template <typename T>
std::vector<T> added_up(int ranks, std::uint64_t number) {
  std::vector<T> sum(kElements);
  std::vector<T> mine(kElements);
  for (int rank = 0; rank < ranks; ++rank) {
    specdec::CraftedPayload<T>(rank, ranks).fill(mine, number);
    for (std::size_t i = 0; i < kElements; ++i) {
      sum[i] = rank == 0 ? mine[i] : add_in_tree(sum[i], mine[i]);
    }
  }
  return sum;
}

TYPED_TEST(CraftedPayload, TheSumIsExactForAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 8, 16, 17, 33, 100}) {
    const specdec::CraftedPayload<TypeParam> payload(0, ranks);
    const std::vector<TypeParam> sum = added_up<TypeParam>(ranks, 5);
    EXPECT_EQ(payload.count_wrong(sum, 5), 0U) << ranks;
    const auto largest = std::ranges::max(sum, {}, [](TypeParam e) { return value_of(e); });
    EXPECT_LE(value_of(largest), 256.0F) << "bf16 counts no further, " << ranks << " ranks";
  }
}

TYPED_TEST(CraftedPayload, CountsEveryWrongElement) {
  constexpr int kRanks = 4;
  const specdec::CraftedPayload<TypeParam> payload(0, kRanks);
  std::vector<TypeParam> sum = added_up<TypeParam>(kRanks, 7);
  for (const std::size_t at : {std::size_t{0}, std::size_t{4092}, std::size_t{4093}, kElements - 1}) {
    sum[at] = TypeParam{};
  }
  EXPECT_EQ(payload.count_wrong(sum, 7), 4U);
}

TYPED_TEST(CraftedPayload, AResultOfAnotherIterationOrPlaceIsWrong) {
  constexpr int kRanks = 4;
  const specdec::CraftedPayload<TypeParam> payload(0, kRanks);
  const std::vector<TypeParam> sum = added_up<TypeParam>(kRanks, 7);
  // Sums of four values from 1 to 13 meet by chance in one of about fifteen places.
  EXPECT_GT(payload.count_wrong(sum, 8), kElements * 3 / 4) << "stale";
  std::vector<TypeParam> unsummed(kElements);
  payload.fill(unsummed, 7);
  EXPECT_EQ(payload.count_wrong(unsummed, 7), kElements) << "every rank gives something to every element";
  std::vector<TypeParam> moved = sum;
  constexpr std::size_t kMoved = 4096;
  std::copy_n(sum.begin() + kMoved, kMoved, moved.begin());
  EXPECT_GT(payload.count_wrong(moved, 7), kMoved * 3 / 4) << "misplaced";
}

/// Spoils one element of every so many all-reduces, on one rank.
class Spoiler final : public tests::ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  void all_reduce(std::span<float> data, Stream stream) override {
    ForwardingCommunicator::all_reduce(data, stream);
    if (rank() == 1 && ++calls_ % 5 == 0) {
      data[data.size() / 2] += 1;
    }
  }
  int spoilt() const { return calls_ / 5; }

 private:
  int calls_ = 0;
};

TEST(AllReduceBench, PlantedWrongSumsAreCounted) {
  ThreadGroup measured(2);
  run_ranks(2, [&](Communicator& control) {
    Spoiler spoiler(measured.communicator(control.rank()));
    const std::vector<Contender> contenders = {{.group = &measured.communicator(control.rank()), .late = {}},
                                               {.group = &spoiler, .late = {}}};
    const auto figures =
        bench_all_reduce<float>(control, contenders, 1000, {.iterations = 30, .warmup = 4}, [] { return false; });
    ASSERT_EQ(figures.size(), 2U);
    EXPECT_EQ(figures[0].iterations, 30);
    EXPECT_EQ(figures[0].wrong, 0);
    EXPECT_EQ(figures[1].wrong, sum_over_ranks(control, std::int64_t{spoiler.spoilt()}));
    EXPECT_GT(figures[1].wrong, 5);
  });
}

/// A payload that lies elsewhere than the host's; its sums are right, or the fifth is not.
class Elsewhere final : public DevicePayload {
 public:
  Elsewhere(Communicator& group, std::size_t elements, bool spoils)
      : group_(group), memory_(elements), spoils_(spoils) {}
  void write(std::span<const std::byte> bytes) override { std::ranges::copy(bytes, bytes_of_memory().begin()); }
  std::optional<double> all_reduce() override {
    group_.all_reduce(std::span(memory_), Stream{});
    memory_[7] += spoils_ && ++calls_ % 5 == 0 ? 1.0F : 0.0F;
    return std::nullopt;
  }
  void read(int which, std::span<std::byte> bytes) override {
    EXPECT_EQ(which, 0);
    std::ranges::copy(bytes_of_memory(), bytes.begin());
  }

 private:
  std::span<std::byte> bytes_of_memory() { return std::as_writable_bytes(std::span(memory_)); }

  Communicator& group_;
  std::vector<float> memory_;
  bool spoils_;
  int calls_ = 0;
};

TEST(AllReduceBench, PayloadsOnADeviceAreSummedAndVerifiedThere) {
  ThreadGroup measured(2);
  run_ranks(2, [&](Communicator& control) {
    Communicator& group = measured.communicator(control.rank());
    const auto elsewhere = [&](bool spoils) {
      return [&group, spoils](DType dtype, std::size_t elements) {
        EXPECT_EQ(dtype, DType::kF32);
        return std::make_unique<Elsewhere>(group, elements, spoils);
      };
    };
    const std::vector<Contender> contenders = {{.group = &group, .on_device = elsewhere(false)},
                                               {.group = &group, .on_device = elsewhere(true)},
                                               {.group = &group}};
    const auto figures =
        bench_all_reduce<float>(control, contenders, 1000, {.iterations = 20, .warmup = 0}, [] { return false; });
    ASSERT_EQ(figures.size(), 3U);
    EXPECT_EQ(figures[0].wrong, 0);
    EXPECT_GE(figures[1].wrong, 2 * 20 / 5);
    EXPECT_EQ(figures[2].wrong, 0);
    EXPECT_EQ(figures[1].iterations, 20);
  });
}

/// Three payloads, of which the last one has a wrong element on rank 0, and a clock of its own: milliseconds and one more for each rank.
class ByItsOwnClock final : public DevicePayload {
 public:
  ByItsOwnClock(Communicator& group, std::size_t elements) : group_(group), memory_(3, std::vector<float>(elements)) {}
  int count() const override { return 3; }
  void write(std::span<const std::byte> bytes) override {
    for (auto& payload : memory_) {
      std::ranges::copy(bytes, std::as_writable_bytes(std::span(payload)).begin());
    }
  }
  std::optional<double> all_reduce() override {
    for (auto& payload : memory_) {
      group_.all_reduce(std::span(payload), Stream{});
    }
    memory_[2][3] += group_.rank() == 0 ? 1.0F : 0.0F;
    return 1e-3 * ++replays_ + group_.rank();
  }
  void read(int which, std::span<std::byte> bytes) override {
    std::ranges::copy(std::as_bytes(std::span(memory_.at(which))), bytes.begin());
  }

 private:
  Communicator& group_;
  std::vector<std::vector<float>> memory_;
  int replays_ = 0;
};

TEST(AllReduceBench, ADevicesClockCountsAndEveryPayloadIsVerified) {
  ThreadGroup measured(2);
  run_ranks(2, [&](Communicator& control) {
    Communicator& group = measured.communicator(control.rank());
    const std::vector<Contender> contenders = {{.group = &group, .on_device = [&](DType, std::size_t elements) {
                                                  return std::make_unique<ByItsOwnClock>(group, elements);
                                                }}};
    const auto figures =
        bench_all_reduce<float>(control, contenders, 100, {.iterations = 10, .warmup = 0}, [] { return false; });
    ASSERT_EQ(figures.size(), 1U);
    EXPECT_DOUBLE_EQ(figures[0].seconds.p50, 1.005) << "rank 1 is the slower one in each replay";
    EXPECT_DOUBLE_EQ(figures[0].seconds.max, 1.01);
    EXPECT_EQ(figures[0].wrong, 10) << "one a replay, on one rank";
  });
}

TEST(AllReduceBench, AGraphHasManySmallAllReducesAndFewLargeOnes) {
  EXPECT_EQ(all_reduces_in_graph(4), 32);
  EXPECT_EQ(all_reduces_in_graph(512 << 10), 32);
  EXPECT_EQ(all_reduces_in_graph((512 << 10) + 4), 31);
  EXPECT_EQ(all_reduces_in_graph(1 << 20), 16);
  EXPECT_EQ(all_reduces_in_graph(16 << 20), 1);
  EXPECT_EQ(all_reduces_in_graph(std::size_t{4} << 30), 1);
  EXPECT_EQ(all_reduces_in_graph(0), 32);
}

TEST(DecodeBench, PlantedWrongSumsAreCounted) {
  ThreadGroup measured(2);
  run_ranks(2, [&](Communicator& control) {
    Spoiler spoiler(measured.communicator(control.rank()));
    const std::vector<Contender> contenders = {{.group = &spoiler, .late = {}}};
    const DecodeShape shape{
        .layers = 3, .elements = 64, .round_bytes = 36, .gap = 0, .layer_bytes = 0, .head_bytes = 0};
    const auto figures =
        bench_decode<float>(control, contenders, shape, {.iterations = 10, .warmup = 0}, [] { return false; });
    ASSERT_EQ(figures.size(), 1U);
    EXPECT_EQ(figures[0].tokens, 10);
    EXPECT_EQ(figures[0].wrong, sum_over_ranks(control, std::int64_t{spoiler.spoilt()}));
    EXPECT_GE(figures[0].wrong, 10);
    EXPECT_GE(figures[0].token.max, figures[0].all_reduces.max);
    EXPECT_GE(figures[0].all_reduces.max, figures[0].all_reduce.max);
  });
}

}  // namespace
}  // namespace specdec
