/// A description made of what a machine shows predicts what that machine does.
#include "runtime/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "runtime/cost_model.h"
#include "runtime/hardware_load.h"
#include "runtime/simulation.h"
#include "tests/support/source_directory.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

using tests::kSource;

PredictedJob shipped(int ranks) {
  return {.target = load_model_config(kSource / "assets/manpy-11m"),
          .draft = load_model_config(kSource / "assets/manpy-2m"),
          .ranks = ranks,
          .context = 150,
          .whole_rows = true};
}

/// A machine that is known in full.
Hardware truth(int ranks) {
  Hardware hardware;
  hardware.ranks = ranks;
  hardware.memory = {.rate = 15e9, .rows_cost = {1, 1.1, 1.3, 1.4, 1.6, 2.0, 2.5, 2.6, 2.8, 3.0}};
  hardware.cache = {.rate = 30e9, .rows_cost = {1, 1.2, 1.7, 1.9, 2.2, 2.9, 3.3, 3.6, 4.1, 4.5}};
  hardware.memory.keys_rate = 9e9;
  hardware.attention_rate = 80e9;
  hardware.cached_bytes = 1.25 * 3.3e6;
  hardware.refill_rate = 11e9;
  hardware.displaced_seconds = 3e-11;
  if (ranks > 1) {
    hardware.node_read_rate = 24e9;
    hardware.ranks_per_node = ranks;
    hardware.interconnect.link = {.algorithm = LinkAlgorithm::kOneShot, .latency = 4e-6, .bandwidth = 2e9};
  }
  hardware.layer_seconds = 3e-6;
  hardware.cold_layer_seconds = 20e-6;
  hardware.drafted_seconds = 11e-6;
  hardware.cold_drafted_seconds = 2e-12;
  hardware.accepted_seconds = 2e-6;
  hardware.loop_seconds = 18e-6;
  hardware.cold_loop_seconds = 12e-6;
  hardware.cache_bytes = 4;
  hardware.payload_bytes = 4;
  return hardware;
}

/// What jobs and passes on it show.
CalibrationData seen(const Hardware& hardware, const PredictedJob& job, std::int64_t drafted, double alpha = 0.8) {
  const auto loop = [&](std::int64_t k) {
    const LoopTime time = loop_time(hardware, job, k, alpha);
    const PassWork work =
        work_of(job.target, {.rows = k + 1, .context = job.context, .ranks = job.ranks, .weights = job.target_dtype});
    const double all_reduce = job.ranks > 1 ? static_cast<double>(work.all_reduces) *
                                                  hardware.interconnect.all_reduce(work.payload_bytes, job.ranks)
                                            : 0;
    return CalibrationLoop{.drafted = static_cast<double>(k),
                           .draft = time.draft,
                           .broadcast = time.broadcast,
                           .compute = time.score - all_reduce,
                           .all_reduce = all_reduce,
                           .rest = time.rest,
                           .alpha = alpha};
  };
  CalibrationData data{.target = job.target,
                       .draft = job.draft,
                       .ranks = job.ranks,
                       .context = static_cast<double>(job.context),
                       .whole_rows = job.whole_rows,
                       .alone = loop(0),
                       .drafts = loop(drafted)};
  const auto alone = [&](std::int64_t rows, std::int64_t context) {
    return pass_time(hardware, work_of(job.target, {.rows = rows, .context = context, .ranks = job.ranks}), job.ranks)
        .work;
  };
  const auto after = [&](std::int64_t rows, const ModelConfig& draft) {
    return alone(rows, job.context) + hardware.displaced_seconds * work_of(draft, {}).weight_bytes;
  };
  data.passes.more_keys = 300;
  for (std::int64_t rows = 1; rows <= 10; ++rows) {
    data.passes.target.push_back(after(rows, job.draft));
    data.passes.target_after_smaller.push_back(after(rows, smaller_draft(job.draft)));
    data.passes.after_more_keys.push_back(alone(rows, job.context + 300) - alone(rows, job.context));
    data.passes.draft.push_back(
        pass_time(hardware, work_of(job.draft, {.rows = rows, .context = job.context}), 1, WeightsIn::kCache).total());
    if (rows > 1) data.passes.beside.scored.push_back(data.passes.draft.back());
  }
  data.passes.whole_target = pass_time(hardware, work_of(job.target, {.context = job.context}), 1).work;
  data.passes.draft_after_target =
      pass_time(hardware, work_of(job.draft, {.rows = 1, .context = job.context}), 1, WeightsIn::kCacheOnce).total();
  data.passes.layer = hardware.layer_seconds;
  const PassWork score = work_of(job.target, {.context = job.context, .ranks = job.ranks});
  // Other ranks that read too delay keys and values as they do weights.
  const double keys =
      hardware.reading_seconds(score.weight_bytes, score.cache_bytes, 1, job.ranks, WeightsIn::kMemory) -
      hardware.reading_seconds(score.weight_bytes, 0, 1, job.ranks, WeightsIn::kMemory);
  data.passes.beside_products =
      keys + hardware.attention_seconds(score.attention) +
      static_cast<double>(score.layers) * (hardware.layer_seconds + hardware.cold_layer_seconds);
  data.passes.beside.loop = hardware.loop_seconds;
  data.passes.beside.pass = data.passes.draft.front();
  data.passes.beside.drafted = hardware.drafted_seconds;
  data.passes.beside.accepted = hardware.accepted_seconds;
  return data;
}

TEST(Calibration, PredictsTheMachineThatItWasMadeOf) {
  for (const int ranks : {1, 2}) {
    for (const double alpha : {0.0, 0.8, 1.0}) {
      const Hardware hardware = truth(ranks);
      const PredictedJob job = shipped(ranks);
      const Hardware found = calibrate(seen(hardware, job, 4, alpha));
      EXPECT_NEAR(found.drafted_seconds, hardware.drafted_seconds, 1e-6);
      EXPECT_NEAR(found.cold_drafted_seconds, hardware.cold_drafted_seconds, 0.1 * hardware.cold_drafted_seconds);
      EXPECT_NEAR(found.loop_seconds, hardware.loop_seconds, 1e-6);
      EXPECT_NEAR(found.cold_loop_seconds, hardware.cold_loop_seconds, 1e-6);
      PredictedJob smaller_draft = job;
      smaller_draft.draft = load_model_config(kSource / "assets/manpy-0.5m");
      PredictedJob cached = smaller_draft;
      cached.target = load_model_config(kSource / "assets/manpy-2m");
      PredictedJob longer = job;
      longer.context = 500;
      for (const PredictedJob& of : {job, smaller_draft, cached, longer}) {
        for (std::int64_t k = 0; k <= 8; ++k) {
          const double expected = loop_time(hardware, of, k, 0.7).total();
          EXPECT_NEAR(loop_time(found, of, k, 0.7).total(), expected, 0.02 * expected)
              << ranks << " ranks, K " << k << ", layers " << of.target.layers;
        }
      }
    }
  }
}

TEST(Calibration, ARanksOwnCacheIsTheRateOfAModelThatFitsInIt) {
  Hardware hardware = truth(1);
  hardware.own_cache_bytes = 2 << 20;
  hardware.own_cache_rate = 70e9;
  const PredictedJob job = shipped(1);
  CalibrationData data = seen(hardware, job, 4);
  EXPECT_EQ(calibrate(data).own_cache_rate, 0) << "nothing was timed";
  data.passes.own_cache_bytes = 2 << 20;
  const ModelConfig model = model_for_cache(job.draft, data.draft_dtype, data.passes.own_cache_bytes).value();
  data.passes.in_own_cache =
      pass_time(hardware, work_of(model, {.rows = 1, .context = job.context}), 1, WeightsIn::kCache, 1).total();
  const Hardware found = calibrate(data);
  EXPECT_EQ(found.own_cache_bytes, 2 << 20);
  EXPECT_NEAR(found.own_cache_rate, 70e9, 0.01 * 70e9);
  EXPECT_EQ(found.own_cache_share, 0.5) << "nothing was timed that fills it";

  const PassWork filling =
      work_of(widened_to(model, data.draft_dtype, data.passes.own_cache_bytes), {.rows = 1, .context = job.context});
  for (const double share : {0.3, 0.8, 1.0}) {
    hardware.own_cache_share = share;
    const double kept = hardware.share_in_own_cache(filling.weight_bytes + filling.cache_bytes);
    data.passes.filling_own_cache = pass_time(hardware, filling, 1, WeightsIn::kCache, kept).total();
    EXPECT_NEAR(calibrate(data).own_cache_share, share, 0.02);
  }
  CalibrationData quick = data;
  quick.passes.filling_own_cache = data.passes.in_own_cache;
  EXPECT_EQ(calibrate(quick).own_cache_share, 1) << "quicker than all of it can be read there: noise";
  quick.context = 4000;
  EXPECT_EQ(calibrate(quick).own_cache_share, 0.5) << "keys are more than the model";

  CalibrationData slow = data;
  slow.passes.in_own_cache *= 10;
  EXPECT_EQ(calibrate(slow).own_cache_rate, 0) << "slower than the cache that cores share: noise";
  data.passes.own_cache_bytes = 3 << 20;
  EXPECT_EQ(calibrate(data).own_cache_rate, 0)
      << "some of the draft is there too, and nobody can tell the two rates apart";
}

/// What ranks take that wait for one another while they read.
TEST(Calibration, TheLinkIsThatOfRanksThatDoNothingElse) {
  const Hardware hardware = truth(2);
  const PredictedJob job = shipped(2);
  CalibrationData data = seen(hardware, job, 4);
  const double row = static_cast<double>(job.target.d_model) * hardware.payload_bytes;
  for (const double rows : {1, 4, 16}) {
    data.all_reduces.push_back({rows * row, hardware.interconnect.all_reduce(static_cast<std::size_t>(rows * row), 2)});
  }
  const double waits = 0.2 * data.alone.compute;
  data.alone.all_reduce += waits;
  data.drafts.all_reduce += waits;
  const Hardware found = calibrate(data);
  EXPECT_NEAR(found.interconnect.link.latency, hardware.interconnect.link.latency, 1e-9);
  EXPECT_NEAR(found.interconnect.link.bandwidth, hardware.interconnect.link.bandwidth, 1e6);
  PredictedJob cached = job;
  cached.target = cached.draft;
  cached.draft = load_model_config(kSource / "assets/manpy-0.5m");
  for (const std::int64_t k : {0, 1, 4, 8}) {
    const double expected = loop_time(hardware, job, k, 0.7).total() + waits;
    EXPECT_NEAR(loop_time(found, job, k, 0.7).total(), expected, 0.01 * expected) << k << ", from memory";
    const double without = loop_time(hardware, cached, k, 0.7).total();
    EXPECT_NEAR(loop_time(found, cached, k, 0.7).total(), without, 0.01 * without) << k << ", from the cache";
  }

  data.all_reduces.clear();
  EXPECT_GT(calibrate(data).interconnect.link.latency, 2 * hardware.interconnect.link.latency)
      << "all are the link's where it was not timed";
  data = seen(hardware, job, 4);
  data.all_reduces = {{row, 1.0}, {4 * row, 0.5}};
  EXPECT_NEAR(calibrate(data).interconnect.link.latency, 1.0, 1e-6) << "slower than in jobs, and noise";
}

/// Where nothing hides what its two rows take.
TEST(Calibration, ADraftedTokenIsWhatIsLeftOfADraftsFirstPassToo) {
  PredictedJob job = shipped(1);
  job.target = job.draft;
  for (const double alpha : {0.0, 0.8, 1.0}) {
    const Hardware found = calibrate(seen(truth(1), job, 4, alpha));
    EXPECT_NEAR(found.drafted_seconds, truth(1).drafted_seconds, 0.2e-6) << alpha;
  }
}

TEST(Calibration, KeysAndValuesHaveACostOfTheirOwn) {
  for (const int ranks : {1, 2}) {
    const Hardware hardware = truth(ranks);
    const PredictedJob job = shipped(ranks);
    CalibrationData data = seen(hardware, job, 4);
    const Hardware found = calibrate(data);
    EXPECT_NEAR(found.memory.keys_rate, hardware.memory.keys_rate, 0.01 * hardware.memory.keys_rate) << ranks;
    EXPECT_NEAR(found.attention_rate, hardware.attention_rate, 0.01 * hardware.attention_rate) << ranks;
    EXPECT_NEAR(found.memory.rate, hardware.memory.rate, 0.01 * hardware.memory.rate) << ranks;

    data.passes.after_more_keys.clear();
    const Hardware without = calibrate(data);
    EXPECT_DOUBLE_EQ(without.memory.keys_rate, without.memory.rate) << "as weights, where none were timed";
    EXPECT_EQ(without.attention_rate, 0);
    const auto score = [&](const Hardware& of) { return loop_work(of, job, 0).score.work; };
    EXPECT_NEAR(score(without), score(hardware), 1e-6);
  }
}

TEST(Calibration, ALayerFromMemoryTakesMoreThanOneOfNextToNoWeights) {
  for (const int ranks : {1, 2}) {
    const Hardware hardware = truth(ranks);
    const PredictedJob job = shipped(ranks);
    CalibrationData data = seen(hardware, job, 4);
    const Hardware found = calibrate(data);
    EXPECT_NEAR(found.cold_layer_seconds, hardware.cold_layer_seconds, 0.01 * hardware.cold_layer_seconds) << ranks;
    PredictedJob deeper = job;
    deeper.target.layers *= 4;
    const double expected = loop_work(hardware, deeper, 0).score.work;
    EXPECT_NEAR(loop_work(found, deeper, 0).score.work, expected, 0.01 * expected) << ranks;

    for (const double nothing_known : {0.0, 1e-6}) {
      data.passes.beside_products = nothing_known;
      EXPECT_EQ(calibrate(data).cold_layer_seconds, 0) << ranks;
    }
  }
}

TEST(Calibration, NoiseLeavesKeysAndValuesOneOfTheirTwoCosts) {
  CalibrationData data = seen(truth(1), shipped(1), 4);
  const double longest = data.passes.after_more_keys.back();
  std::ranges::reverse(data.passes.after_more_keys);
  const Hardware bytes = calibrate(data);
  EXPECT_EQ(bytes.attention_rate, 0) << "more rows took less";
  EXPECT_LT(bytes.memory.keys_rate, truth(1).memory.keys_rate);
  for (std::size_t i = 0; i < data.passes.after_more_keys.size(); ++i) {
    data.passes.after_more_keys[i] = longest * (static_cast<double>(i) - 2) / 10;
  }
  const Hardware operations = calibrate(data);
  EXPECT_GT(operations.memory.keys_rate, 1e12) << "none left for bytes";
  EXPECT_GT(operations.attention_rate, 0);
  std::ranges::fill(data.passes.after_more_keys, -1e-3);
  EXPECT_EQ(calibrate(data).attention_rate, 0);
  EXPECT_GT(calibrate(data).memory.rate, 0);
}

TEST(Calibration, ASimulationHasThePercentilesOfTheLoopsThatItWasMadeOf) {
  for (const int ranks : {1, 2}) {
    const PredictedJob job = shipped(ranks);
    CalibrationData data = seen(truth(ranks), job, 4);
    const double loop = loop_time(truth(ranks), job, 0, 0.8).total();
    data.loops = {.p50 = loop, .p90 = 1.1 * loop, .p99 = 1.5 * loop};
    const Hardware found = calibrate(data);
    const Simulated played = simulate(found, job, 0.8, 0, 200000, 1);
    EXPECT_NEAR(played.loop.p50, data.loops->p50, 0.02 * loop) << ranks;
    EXPECT_NEAR(played.loop.p90, data.loops->p90, 0.02 * loop) << ranks;
    // A loop of one stretch has one delay at most, not a Poisson number of them.
    EXPECT_NEAR(played.loop.p99, data.loops->p99, 0.04 * loop) << ranks;
  }
}

TEST(Calibration, WhatJobsAddToAPassGrowsWithTheRootOfWhatIsDraftedOrIsTheMeanWhereMoreRowsAddLess) {
  const PredictedJob job = shipped(2);
  PredictedJob smaller = job;
  smaller.draft = load_model_config(kSource / "assets/manpy-0.5m");
  const CalibrationData as_timed = seen(truth(2), job, 4);
  const double longer = 0.3 * as_timed.drafts.compute;
  for (const auto& [alone, drafting] : {std::pair(1, 1), std::pair(0, 1), std::pair(1, 2), std::pair(1, 0)}) {
    CalibrationData data = as_timed;
    data.alone.compute += alone * longer;
    data.drafts.compute += drafting * longer;
    const Hardware found = calibrate(data);
    for (const PredictedJob& of : {job, smaller}) {
      for (const std::int64_t k : {0, 1, 2, 4, 7}) {
        const double mean = k == 0 ? alone : (alone + drafting) / 2.0;
        const double added = longer * (drafting > alone ? alone + std::sqrt(static_cast<double>(k) / 4) : mean);
        const double expected = loop_work(truth(2), of, k).score.work + added;
        EXPECT_NEAR(loop_work(found, of, k).score.work, expected, 0.01 * expected) << k << ", " << alone << drafting;
      }
    }
    EXPECT_EQ(found.memory.cost_of(1), 1);
    EXPECT_NEAR(found.cache.cost_of(5), truth(2).cache.cost_of(5), 0.01) << "what stays in a cache is not the target's";
  }
}

TEST(Calibration, ADraftDrivesOutAsMuchAsItIsLarge) {
  const Hardware hardware = truth(1);
  const PredictedJob job = shipped(1);
  CalibrationData data = seen(hardware, job, 4);
  EXPECT_NEAR(calibrate(data).displaced_seconds, hardware.displaced_seconds, 1e-3 * hardware.displaced_seconds);
  data.passes.target_after_smaller.clear();
  EXPECT_EQ(calibrate(data).displaced_seconds, 0) << "of drafts of one size nothing is known";
  data = seen(hardware, job, 4);
  std::swap(data.passes.target, data.passes.target_after_smaller);
  EXPECT_EQ(calibrate(data).displaced_seconds, 0) << "noise";
}

TEST(Calibration, WhatStaysInACacheIsScoredAsInLoopsOfItsOwn) {
  CalibrationData data = seen(truth(1), shipped(1), 4);
  for (double& seconds : data.passes.beside.scored) seconds *= 1.2;
  const Hardware found = calibrate(data);
  PredictedJob cached = shipped(1);
  cached.target = cached.draft;
  cached.draft = load_model_config(kSource / "assets/manpy-0.5m");
  const auto score = [&](const Hardware& hardware, std::int64_t k) {
    return loop_work(hardware, cached, k).score.work;
  };
  EXPECT_NEAR(score(found, 4), 1.2 * score(truth(1), 4), 0.01 * score(truth(1), 4));
  EXPECT_NEAR(score(found, 0), score(truth(1), 0), 0.01 * score(truth(1), 0));
  data.passes.beside.scored.clear();
  EXPECT_NEAR(score(calibrate(data), 4), score(truth(1), 4), 0.01 * score(truth(1), 4)) << "as one after another";
}

/// Back to back they have nothing beside them in the cores.
TEST(Calibration, WhatStaysInACacheIsReadAsInLoops) {
  CalibrationData data = seen(truth(1), shipped(1), 4);
  data.passes.draft.front() /= 2;
  const auto later = [&](const Hardware& of) { return loop_work(of, shipped(1), 4).later_draft.total(); };
  EXPECT_NEAR(later(calibrate(data)), later(truth(1)), 0.01 * later(truth(1)));
  data.passes.beside.pass = 0;
  EXPECT_NEAR(later(calibrate(data)), later(truth(1)) / 2, 0.01 * later(truth(1))) << "where no loops were timed";
}

TEST(Calibration, WhereJobsDraftMoreQuicklyThanWarmLoopsTheFirstPassIsTheQuicker) {
  const PredictedJob job = shipped(1);
  CalibrationData data = seen(truth(1), job, 4);
  const double less = 4 * truth(1).cold_drafted_seconds * work_of(job.draft, {}).weight_bytes + 30e-6;
  data.drafts.draft -= less;
  const Hardware found = calibrate(data);
  EXPECT_NEAR(found.drafted_seconds, truth(1).drafted_seconds, 1e-7) << "as warm loops have it";
  EXPECT_EQ(found.cold_drafted_seconds, 0);
  const auto first = [&](const Hardware& hardware) { return loop_work(hardware, job, 4).first_draft.total(); };
  EXPECT_NEAR(first(found), first(truth(1)) - 30e-6, 1e-6);
  const double expected = loop_time(truth(1), job, 4, 0.8).draft - less;
  EXPECT_NEAR(loop_time(found, job, 4, 0.8).draft, expected, 0.01 * expected);
}

TEST(Calibration, SeveralRowsMayCostLessThanOne) {
  Hardware hardware = truth(1);
  hardware.memory.rows_cost = {1, 0.95, 0.85, 0.9, 1.1, 1.4, 1.8, 2.0, 2.2, 2.4};
  const PredictedJob job = shipped(1);
  const Hardware found = calibrate(seen(hardware, job, 4));
  for (const std::int64_t rows : {1, 2, 3, 5, 9}) {
    EXPECT_NEAR(found.memory.cost_of(rows), hardware.memory.cost_of(rows), 0.01) << rows;
  }
}

TEST(Calibration, NoiseLeavesNoNegativeConstants) {
  CalibrationData data = seen(truth(2), shipped(2), 4);
  data.alone.rest = 0;
  data.alone.broadcast = 0;
  data.drafts.draft = 1e-9;
  data.drafts.all_reduce = data.alone.all_reduce / 2;
  data.drafts.compute = data.alone.compute / 2;
  data.passes.layer = 1;
  const Hardware found = calibrate(data);
  EXPECT_EQ(found.loop_seconds + found.cold_loop_seconds, 0);
  EXPECT_EQ(found.cold_drafted_seconds, 0);
  EXPECT_GE(found.displaced_seconds, 0);
  EXPECT_GT(found.refill_rate, 0);
  EXPECT_GT(found.memory.rate, 0);
  EXPECT_GT(found.interconnect.link.bandwidth, 0);
  EXPECT_GE(found.interconnect.link.latency, 0);
  for (const double cost : found.memory.rows_cost) EXPECT_GE(cost, 0.05);
}

TEST(Calibration, IsWrittenAsItIsRead) {
  const tests::TemporaryDirectory directory;
  Hardware hardware = truth(2);
  hardware.source = hardware.interconnect.source = "a test";
  hardware.displaced_seconds = 3e-11;
  hardware.memory.rows_cost[2] = 0.9;
  hardware.own_cache_bytes = 2 << 20;
  hardware.own_cache_rate = 70e9;
  hardware.own_cache_share = 0.65;
  hardware.disturbance.compute = {.tail_probability = 0.01, .tail_mean = 2e-3};
  const auto file = directory.path() / "m.yaml";
  std::ofstream(file) << hardware_yaml(hardware, "w.yaml");
  std::ofstream(directory.path() / "w.yaml") << interconnect_yaml(hardware.interconnect);
  const Hardware read = load_hardware(file.string(), "test");
  EXPECT_NEAR(read.disturbance.compute.tail_probability, 0.01, 1e-6);
  EXPECT_NEAR(read.disturbance.compute.tail_mean, 2e-3, 1e-6);
  EXPECT_NEAR(read.own_cache_bytes, 2 << 20, 1e3);
  EXPECT_NEAR(read.own_cache_rate, 70e9, 1e8);
  EXPECT_NEAR(read.own_cache_share, 0.65, 1e-3);
  const PredictedJob job = shipped(2);
  for (const std::int64_t k : {0, 1, 4, 8, 12}) {
    const double expected = loop_time(hardware, job, k, 0.8).total();
    EXPECT_NEAR(loop_time(read, job, k, 0.8).total(), expected, 1e-3 * expected) << k;
  }
}

}  // namespace
}  // namespace specdec
