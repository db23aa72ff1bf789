#include "runtime/metrics.h"

#include <gtest/gtest.h>

#include "runtime/theory.h"

namespace specdec {
namespace {

/// One prompt of four steps of 10 ms each, 8 ms of them scoring.
RunRecord autoregressive() {
  RunRecord run{.method = "autoregressive", .k = 0, .outputs = {}};
  OutputRecord output;
  output.token_ids = {1, 2, 3, 4};
  output.finish_reason = "length";
  output.prefill = 0.5;
  output.ttft = 0.51;
  for (int i = 0; i < 4; ++i) {
    LoopRecord loop;
    loop.total = 0.010;
    loop.score_compute = 0.006;
    loop.score_all_reduce = 0.002;
    loop.emitted = 1;
    output.loops.push_back(loop);
  }
  run.outputs.push_back(output);
  return run;
}

/// K = 2: a full loop of 3 tokens in 15 ms, one of 1 token in 13 ms, and one that the limit cut.
RunRecord speculative() {
  RunRecord run{.method = "speculative", .k = 2, .outputs = {}};
  OutputRecord output;
  output.token_ids = {1, 2, 3, 4, 5};
  output.finish_reason = "length";
  output.ttft = 0.2;
  output.loops = {{.total = 0.015,
                   .draft = 0.002,
                   .broadcast = 0.001,
                   .score_compute = 0.008,
                   .score_all_reduce = 0.002,
                   .decide = 0.001,
                   .drafted = 2,
                   .reached = 2,
                   .accepted = 2,
                   .beta_sum = 1.5,
                   .emitted = 3,
                   .cut = false},
                  {.total = 0.013,
                   .draft = 0.002,
                   .broadcast = 0.001,
                   .score_compute = 0.004,
                   .score_all_reduce = 0.002,
                   .decide = 0.001,
                   .drafted = 2,
                   .reached = 1,
                   .accepted = 0,
                   .beta_sum = 0.25,
                   .emitted = 1,
                   .cut = false},
                  {.total = 0.012,
                   .draft = 0.001,
                   .broadcast = 0,
                   .score_compute = 0.009,
                   .score_all_reduce = 0,
                   .decide = 0,
                   .drafted = 1,
                   .reached = 1,
                   .accepted = 0,
                   .beta_sum = 0.25,
                   .emitted = 1,
                   .cut = true}};
  run.outputs.push_back(output);
  return run;
}

TEST(Metrics, AutoregressiveFigures) {
  const RunMetrics m = measure(autoregressive());
  EXPECT_EQ(m.tokens, 4);
  EXPECT_EQ(m.loops, 4);
  EXPECT_DOUBLE_EQ(*m.seconds_per_token, 0.010);
  EXPECT_DOUBLE_EQ(*m.tokens_per_second, 100);
  EXPECT_DOUBLE_EQ(*m.ttft, 0.51);
  EXPECT_DOUBLE_EQ(m.prefill_seconds, 0.5);
  EXPECT_FALSE(m.acceptance_rate) << "nothing was drafted";
  EXPECT_FALSE(m.expected_tokens_per_loop);
  EXPECT_DOUBLE_EQ(*m.tokens_per_loop, 1);
}

TEST(Metrics, SpeculativeFigures) {
  const RunMetrics m = measure(speculative());
  EXPECT_EQ(m.tokens, 5);
  EXPECT_EQ(m.full_loops, 2);
  EXPECT_DOUBLE_EQ(*m.seconds_per_token, 0.040 / 5);
  EXPECT_DOUBLE_EQ(*m.acceptance_rate, 2.0 / 4) << "over reached positions, not over drafted ones";
  EXPECT_DOUBLE_EQ(*m.accepted_over_reached, 2.0 / 4);
  EXPECT_DOUBLE_EQ(*m.tokens_per_loop, 2) << "the cut loop does not count";
  EXPECT_DOUBLE_EQ(*m.expected_tokens_per_loop, 1.75) << "1 + 0.5 + 0.25";
  EXPECT_DOUBLE_EQ(*m.draft_seconds_per_token, 0.001);
  EXPECT_DOUBLE_EQ(*m.full_seconds_per_token, 0.028 / 4);
  EXPECT_NEAR(m.split.rest, 0.001 + 0.003 + 0.002, 1e-15);
  EXPECT_NEAR(m.split.draft + m.split.broadcast + m.split.score_compute + m.split.score_all_reduce + m.split.decide +
                  m.split.rest,
              m.split.total, 1e-15);
}

TEST(Metrics, PercentilesWeighTokensAndLoops) {
  const RunMetrics m = measure(speculative());
  // Tokens: three of 5 ms, one of 12, one of 13. Loops: 12, 13, 15.
  EXPECT_DOUBLE_EQ(m.token_time->p50, 0.005);
  EXPECT_DOUBLE_EQ(m.token_time->p90, 0.013);
  EXPECT_DOUBLE_EQ(m.loop_time->p50, 0.013);
  EXPECT_DOUBLE_EQ(m.loop_time->p99, 0.015);
}

Comparison compare_runs(const RunRecord* alone, const RunRecord* fast, bool greedy) {
  const auto measured = [](const RunRecord* run) { return run ? MeasuredRun{run, measure(*run)} : MeasuredRun{}; };
  const MeasuredRun a = measured(alone);
  const MeasuredRun f = measured(fast);
  return compare({.autoregressive = alone ? &a : nullptr, .speculative = fast ? &f : nullptr}, greedy);
}

TEST(Metrics, Compares) {
  const RunRecord alone = autoregressive();
  const RunRecord fast = speculative();
  const Comparison c = compare_runs(&alone, &fast, false);
  EXPECT_DOUBLE_EQ(*c.speedup, 10.0 / 8);
  EXPECT_DOUBLE_EQ(*c.full_speedup, 10.0 / 7);
  EXPECT_DOUBLE_EQ(*c.cost_ratio, 0.1);
  EXPECT_NEAR(*c.predicted_speedup, 1.75 / 1.2, 1e-14);
  EXPECT_NEAR(*c.measured_over_predicted, (10.0 / 7) / (1.75 / 1.2), 1e-14);
  EXPECT_EQ(*c.best_k, best_k(0.5, 0.1, kMaxBestK));
  EXPECT_NEAR(*c.score_cost, 0.008 / 0.008, 1e-14) << "(10 + 6) / 2 ms over 8 ms";
  EXPECT_NEAR(*c.loop_cost, 1.4, 1e-14);
  EXPECT_NEAR(*c.full_speedup, *measure(fast).tokens_per_loop / *c.loop_cost, 1e-14);
  EXPECT_FALSE(c.identical) << "sampled texts are not compared";
}

TEST(Metrics, TheoremsStandBesideARunThatHasNothingBesideIt) {
  const RunRecord fast = speculative();
  const MeasuredRun f{&fast, measure(fast)};
  const Comparison c = compare({.autoregressive = nullptr, .speculative = &f}, false, 0.2);
  EXPECT_NEAR(*c.cost_over_score, 0.001 / 0.008, 1e-14) << "1 ms over (10 + 6) / 2";
  EXPECT_NEAR(*c.speedup_over_score, 1.75 / (2 * 0.125 + 1), 1e-14);
  EXPECT_NEAR(*c.operations, (2 * 0.2 + 3) / 1.75, 1e-14);
  EXPECT_FALSE(c.speedup);
  EXPECT_FALSE(c.cost_ratio);
  EXPECT_FALSE(c.predicted_speedup);
}

TEST(Metrics, IdenticalOnGreedyOnly) {
  const RunRecord alone = autoregressive();
  RunRecord other = autoregressive();
  EXPECT_EQ(compare_runs(&alone, &other, true).identical, true);
  other.outputs[0].token_ids[2] = 9;
  EXPECT_EQ(compare_runs(&alone, &other, true).identical, false);
  other.outputs[0].finish_reason = "interrupted";
  EXPECT_FALSE(compare_runs(&alone, &other, true).identical) << "unfinished texts differ for no reason of the method";
  EXPECT_FALSE(compare_runs(&alone, nullptr, true).speedup);
}

TEST(Metrics, NoDataNoFigure) {
  const RunMetrics m = measure(RunRecord{});
  EXPECT_FALSE(m.seconds_per_token);
  EXPECT_FALSE(m.ttft);
  EXPECT_FALSE(m.token_time);
  EXPECT_FALSE(m.tokens_per_loop);
}

}  // namespace
}  // namespace specdec
