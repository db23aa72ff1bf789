// Which weights the products of a matrix ask for at their end: those that were multiplied with next the last time.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <optional>

#include "backend/cpu/matmul.h"
#include "backend/cpu/row_ops.h"
#include "backend/error.h"
#include "tests/unit/matmul_cases.h"

namespace specdec {
namespace {

using matmul_test::Weight;

constexpr int kMostThreads = 3;

/// Whoever asked, for each place of a matrix that is asked for.
std::array<std::atomic<const std::byte*>, 64> asked_places;
std::atomic<int> asked_count;
std::atomic<std::int64_t> asked_panel_bytes;

/// A kernel that multiplies nothing and writes down what it may ask for of another matrix.
void write_down(const MatmulJob& job, std::int64_t, std::int64_t end) {
  const bool goes_on = job.next.data == job.panels + end * job.panel_bytes;
  if (job.next.data != nullptr && !goes_on) {
    asked_places.at(static_cast<std::size_t>(asked_count++)) = job.next.data;
    asked_panel_bytes = job.next.bytes;
  }
}

const MatmulKernel kWritesDown = {.run = &write_down,
                                  .pack = [](const float*, std::int64_t, std::int64_t, std::int64_t, std::byte*) {},
                                  .side_by_side = [](std::int64_t) -> std::int64_t { return 1; },
                                  .x_step_bytes = 4,
                                  .max_rows = 4};

class MatmulNext : public ::testing::TestWithParam<int> {
 protected:
  /// Multiplies, and returns what was asked for, in order.
  std::vector<std::ptrdiff_t> asks(const CpuPackedLinear& weight, const CpuPackedLinear& of, std::int64_t rows = 1) {
    asked_count = 0;
    std::vector<float> x(static_cast<std::size_t>(rows * weight.in_features()));
    std::vector<float> y(static_cast<std::size_t>(rows * weight.out_features()));
    matmul(weight, {x.data(), rows, weight.in_features(), weight.in_features()},
           {y.data(), rows, weight.out_features(), weight.out_features()}, scratch_, pool_);
    std::vector<std::ptrdiff_t> panels;
    for (int i = 0; i < asked_count; ++i) {
      EXPECT_EQ(asked_panel_bytes, of.panel_bytes());
      panels.push_back((asked_places.at(static_cast<std::size_t>(i)).load() - of.panels()) / of.panel_bytes());
    }
    std::sort(panels.begin(), panels.end());
    return panels;
  }
  CpuPackedLinear packed(std::int64_t out, std::int64_t in) {
    return {Weight(out, in, 1).spec(DType::kBF16), kWritesDown};
  }

  ThreadPool pool_{GetParam()};
  MatmulScratch scratch_;
};

TEST_P(MatmulNext, IsWhatCameNextTheLastTime) {
  // As large as lets each thread have a part of it.
  const CpuPackedLinear first = packed(16 * 30, 512);
  const CpuPackedLinear second = packed(16 * 60, 256);
  const CpuPackedLinear third = packed(16 * 3, 64);
  for (const CpuPackedLinear* weight : {&first, &second, &third}) {
    scratch_.reserve(*weight, pool_.size());
  }
  using Panels = std::vector<std::ptrdiff_t>;
  EXPECT_EQ(asks(first, second), Panels{}) << "nothing is known yet";
  EXPECT_EQ(asks(second, third), Panels{});
  EXPECT_EQ(asks(third, first), Panels{});
  // The end of a part may have been taken by a thread whose own it is not, and then nobody asks for what its own reads next. It was not so with the part
  // that was done first.
  const auto parts_of = [&](const CpuPackedLinear& of, int threads) {
    Panels parts;
    for (int thread = 0; thread < threads; ++thread) {
      parts.push_back(of.panel_count() * thread / threads);
    }
    return parts;
  };
  const auto expect_some_of = [&](const Panels& found, const Panels& parts) {
    EXPECT_TRUE(!found.empty() || parts.size() < static_cast<std::size_t>(GetParam()));
    EXPECT_TRUE(std::includes(parts.begin(), parts.end(), found.begin(), found.end()))
        << ::testing::PrintToString(found) << " of " << ::testing::PrintToString(parts);
  };
  for (int pass = 0; pass < 20; ++pass) {
    expect_some_of(asks(first, second), parts_of(second, GetParam()));
    expect_some_of(asks(second, third), parts_of(third, 1));
    EXPECT_EQ(asks(third, first), Panels{0}) << "one thread has it, and asks for its own part only";
  }
  // Another order is learnt.
  asks(first, second);
  asks(third, first);
  asks(second, third);
  expect_some_of(asks(first, third), parts_of(third, 1));
}

TEST_P(MatmulNext, IsAskedForByTheLastRowsOnly) {
  const CpuPackedLinear weight = packed(16, 64);
  scratch_.reserve(weight, pool_.size());
  asks(weight, weight);
  EXPECT_EQ(asks(weight, weight, 1).size(), 1U);
  EXPECT_EQ(asks(weight, weight, 64).size(), 1U);
  EXPECT_EQ(asks(weight, weight, 200).size(), 1U) << "of four blocks of 64 rows";
}

TEST_P(MatmulNext, WeightsThatAreGoneAreNotTouched) {
  const CpuPackedLinear weight = packed(16, 64);
  scratch_.reserve(weight, pool_.size());
  {
    const auto other = std::make_unique<CpuPackedLinear>(Weight(16, 64, 2).spec(DType::kBF16), kWritesDown);
    scratch_.reserve(*other, pool_.size());
    asks(weight, *other);
    asks(*other, weight);
    asks(weight, *other);
  }
  asked_count = 0;
  float x[64] = {};
  float y[16] = {};
  matmul(weight, {x, 1, 64, 64}, {y, 1, 16, 16}, scratch_, pool_);
  EXPECT_EQ(asked_count, 1) << "by its address alone";
}

/// Panels of a run, and the first of those that it may ask for, or -1.
struct GatedRun {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t next;
  bool operator==(const GatedRun&) const = default;
};
std::vector<GatedRun> gated_runs;

const std::byte* gated_panels;

void write_down_gated(const MatmulJob& job, std::int64_t begin, std::int64_t end) {
  const auto place_of = [&](const std::byte* panel) { return (panel - gated_panels) / job.panel_bytes; };
  const std::int64_t first = place_of(job.panels);
  gated_runs.push_back({first + begin, first + end, job.next.data != nullptr ? place_of(job.next.data) : -1});
}

TEST(MatmulNextGated, GatesAskForWhatTheyGateAndThatForTheNextGates) {
  MatmulKernel kernel = kWritesDown;
  kernel.run = &write_down_gated;
  const Weight values(2 * 16 * 10, 512, 1);
  LinearSpec spec = values.spec(DType::kBF16);  // panels of 16 KB, ten of gates
  spec.gated = true;
  const CpuPackedLinear weight{spec, kernel};
  ASSERT_EQ(weight.gate_panels(), 10);
  gated_panels = weight.panels();
  ThreadPool pool(1);
  MatmulScratch scratch;
  scratch.reserve(weight, 1);
  std::vector<float> x(512);
  std::vector<float> out(160);
  const RowOps& ops = row_ops(Isa::kScalar);
  const auto runs = [&] {
    gated_runs.clear();
    matmul_silu_mul(weight, {x.data(), 1, 512, 512}, nullptr, {out.data(), 1, 160, 160}, ops, ops.kept, scratch, pool);
    return gated_runs;
  };
  // 64 KB of each at a time. The weight itself came next the last time.
  const auto expected = [](std::int64_t at_the_end) {
    return std::vector<GatedRun>{{0, 4, 10}, {10, 14, 4}, {4, 8, 14}, {14, 18, 8}, {8, 10, 18}, {18, 20, at_the_end}};
  };
  EXPECT_EQ(runs(), expected(-1));
  EXPECT_EQ(runs(), expected(0));

  ThreadPool more(2);
  EXPECT_THROW(matmul_silu_mul(weight, {x.data(), 1, 512, 512}, nullptr, {out.data(), 1, 160, 160}, ops, ops.kept,
                               scratch, more),
               Error)
      << "the scratch has gates of one thread";
}

std::vector<ReadFrom> places_of_jobs;

void note_place(const MatmulJob& job, std::int64_t, std::int64_t) { places_of_jobs.push_back(job.read_from); }

TEST(MatmulFromMemory, IsWhatTheCacheHasNotHeldSinceItsLastTurn) {
  MatmulKernel notes = kWritesDown;
  notes.run = &note_place;
  const CpuPackedLinear target{Weight(48, 64, 1).spec(DType::kBF16), notes};
  const CpuPackedLinear head{Weight(32, 64, 2).spec(DType::kBF16), notes};
  const CpuPackedLinear draft{Weight(16, 64, 3).spec(DType::kBF16), notes};
  ThreadPool pool(1);
  // M: from memory, e: from the cache if it is ours alone, c: from the cache.
  const auto places = [&](MatmulScratch& scratch, const std::vector<const CpuPackedLinear*>& weights) {
    std::string found;
    for (const CpuPackedLinear* weight : weights) {
      places_of_jobs.clear();
      float x[64] = {};
      float y[48] = {};
      matmul(*weight, {x, 1, 64, 64}, {y, 1, weight->out_features(), 48}, scratch, pool);
      EXPECT_EQ(places_of_jobs.size(), 1U);
      for (const ReadFrom from : places_of_jobs) found += "Mec"[static_cast<int>(from)];
    }
    return found;
  };
  const auto shown = [&](std::optional<std::int64_t> cache_bytes) {
    MatmulScratch scratch(cache_bytes);
    for (const CpuPackedLinear* weight : {&target, &head, &draft}) scratch.reserve(*weight, 1);
    return scratch;
  };
  const auto all = static_cast<std::int64_t>(target.bytes() + head.bytes() + draft.bytes());
  const std::vector<const CpuPackedLinear*> loop{&draft, &draft, &draft, &draft, &draft, &target, &head};

  MatmulScratch holds_all = shown(all);
  EXPECT_EQ(places(holds_all, loop), "MccccMM");
  EXPECT_EQ(places(holds_all, loop), "eccccee") << "that the draft is read often takes no room";
  EXPECT_EQ(places(holds_all, loop), "eccccee");
  MatmulScratch holds_draft = shown(static_cast<std::int64_t>(draft.bytes()));
  EXPECT_EQ(places(holds_draft, loop), "MccccMM");
  EXPECT_EQ(places(holds_draft, loop), "MccccMM") << "the target drives the draft out";
  MatmulScratch part_holds_all = shown(4 * all);
  EXPECT_EQ(places(part_holds_all, loop), "MccccMM");
  EXPECT_EQ(places(part_holds_all, loop), "ccccccc");
  MatmulScratch part_holds_draft = shown(4 * static_cast<std::int64_t>(draft.bytes()));
  EXPECT_EQ(places(part_holds_draft, loop), "MccccMM");
  MatmulScratch unknown = shown(std::nullopt);
  EXPECT_EQ(places(unknown, loop), "ccccccc");
  // One that is gone does not count for what lies in its place.
  holds_all.reserve(draft, 1);
  EXPECT_EQ(places(holds_all, {&draft, &draft}), "Mc");
}

TEST(LastLevelCache, IsReadAsTheKernelWritesIt) {
  EXPECT_EQ(parse_cache_size("32768K"), std::int64_t{32} << 20);
  EXPECT_EQ(parse_cache_size("1K"), 1024);
  for (const char* other : {"", "K", "32768", "32768M", "-1K", "0K", "32768K ", "99999999999999999999K"}) {
    EXPECT_EQ(parse_cache_size(other), std::nullopt) << other;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, MatmulNext, ::testing::Range(1, kMostThreads + 1),
                         [](const auto& threads) { return std::to_string(threads.param) + "threads"; });

}  // namespace
}  // namespace specdec
