#include "tests/support/sampling_battery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/thread_pool.h"
#include "backend/error.h"
#include "tests/support/bad_input.h"
#include "tests/support/odd_floats.h"

namespace specdec::battery {
namespace {

using tests::kInfinity;
using tests::kNan;
using Values = std::vector<float>;
using Records = std::vector<RowRecord>;

constexpr double kAlmostOne = 1.0 - 0x1p-53;

/// Memory of a backend with a copy on the host.
template <typename T>
class Copied {
 public:
  Copied(Backend& backend, std::vector<T> values)
      : backend_(backend), values_(std::move(values)), memory_(backend.allocate(values_.size() * sizeof(T))) {
    backend_.upload(memory_->data(), std::as_bytes(std::span(values_)), {});
    backend_.synchronize({});
  }
  T* data() { return reinterpret_cast<T*>(memory_->data()); }
  const std::vector<T>& fetch() {
    backend_.download(std::as_writable_bytes(std::span(values_)), memory_->data(), {});
    backend_.synchronize({});
    return values_;
  }

 private:
  Backend& backend_;
  std::vector<T> values_;
  std::unique_ptr<Buffer> memory_;
};

/// What an operation left: rows, records, tokens.
struct Outcome {
  Values rows;
  Records records;
  std::vector<std::int32_t> tokens;
};

testing::AssertionResult alike(const Outcome& expected, const Outcome& found) {
  const auto bits = [](auto value) { return std::bit_cast<std::uint32_t>(value); };
  const auto failure = [](std::size_t i, const char* what) {
    return testing::AssertionFailure() << what << " " << i << ": ";
  };
  for (std::size_t i = 0; i < expected.rows.size(); ++i) {
    if (bits(expected.rows[i]) != bits(found.rows[i])) {
      return failure(i, "entry") << "expected " << expected.rows[i] << ", found " << found.rows[i];
    }
  }
  for (std::size_t i = 0; i < expected.records.size(); ++i) {
    const RowRecord& a = expected.records[i];
    const RowRecord& b = found.records[i];
    if (a.token != b.token) {
      return failure(i, "record") << "expected token " << a.token << ", found " << b.token << " with the uniform "
                                  << a.uniform;
    }
    if (a.fault != b.fault) {
      return failure(i, "record") << "expected fault " << static_cast<int>(a.fault) << ", found "
                                  << static_cast<int>(b.fault);
    }
    if (bits(a.entry) != bits(b.entry) || bits(a.weight) != bits(b.weight)) {
      return failure(i, "record") << "entries or weights differ";
    }
    // No two kinds of NaN.
    if ((bits(a.max) != bits(b.max) && !(std::isnan(a.max) && std::isnan(b.max))) ||
        (bits(a.sum) != bits(b.sum) && !(std::isnan(a.sum) && std::isnan(b.sum)))) {
      return failure(i, "record") << "expected (" << a.max << ", " << a.sum << "), found (" << b.max << ", " << b.sum
                                  << ")";
    }
  }
  return expected.tokens == found.tokens ? testing::AssertionSuccess()
                                         : testing::AssertionFailure() << "tokens apart from the records differ";
}

/// The same operation on both: what the host finds is expected.
void expect_alike(Backend& gpu, const MakeSampler& make, const SamplingParams& params,
                  const std::function<Outcome(Backend&, RowSampler&)>& operation, const std::string& what) {
  CpuBackend cpu(detect_isa(), 1);
  const Outcome expected = operation(cpu, *cpu.make_row_sampler(params));
  EXPECT_TRUE(alike(expected, operation(gpu, *make(params))))
      << what << "; temperature " << params.temperature << ", top-k " << params.top_k << ", top-p " << params.top_p;
}

/// Rows [.., cols] of every kind.
Values logits_of_all_kinds(std::int64_t cols, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Values rows;
  const auto add = [&](const std::function<float(std::int64_t)>& entry) {
    for (std::int64_t i = 0; i < cols; ++i) {
      rows.push_back(entry(i));
    }
  };
  add([&](std::int64_t) { return 2.0F * normal(engine); });
  add([&](std::int64_t) { return std::round(8 * normal(engine)) / 8; });  // ties
  add([&](std::int64_t) { return -1.25F; });                              // nothing else
  add([&](std::int64_t i) { return i == cols / 3 ? 4.0F : -kInfinity; });
  add([&](std::int64_t i) { return i % 3 == 1 && i != 1 ? -kInfinity : 40 * normal(engine); });  // many weigh nothing
  return rows;
}

constexpr std::int64_t kRowKinds = 5;

Rows shaped(float* data, std::int64_t cols) { return {data, kRowKinds, cols, cols}; }

/// Probabilities, as the host makes them.
Values probabilities_of(const Values& logits, std::int64_t cols, const SamplingParams& params) {
  flush_subnormals_to_zero();
  Values out(logits.size());
  Sampler sampler(params);
  for (std::size_t begin = 0; begin < logits.size(); begin += cols) {
    sampler.warp(std::span(logits).subspan(begin, cols), std::span(out).subspan(begin, cols));
  }
  return out;
}

}  // namespace

void expect_warps_of_the_host(Backend& gpu, const MakeSampler& make) {
  for (const std::int32_t cols : {1, 2, 255, 257, 5000}) {
    const Values logits = logits_of_all_kinds(cols, static_cast<unsigned>(cols));
    std::vector<SamplingParams> ways = {{1.0F},
                                        {0.0F},
                                        {1e-39F},
                                        {1e-3F},
                                        {1e6F},
                                        {0.7F, 1},
                                        {1.0F, cols - 1},
                                        {1.0F, cols},
                                        {1.0F, 0, 0.0F},
                                        {1.0F, 0, 0.9F},
                                        {1.0F, 0, std::nextafter(1.0F, 0.0F)},
                                        {0.8F, 40, 0.95F},
                                        {1.3F, 3, 0.5F}};
    for (const SamplingParams& params : ways) {
      const auto warp = [&](Backend& backend, RowSampler& sampler) {
        Copied<float> in(backend, logits);
        Copied<float> out(backend, Values(logits.size(), -1.0F));
        Copied<RowRecord> records(backend, Records(kRowKinds));
        sampler.warp(shaped(in.data(), cols), shaped(out.data(), cols), records.data(), {});
        return Outcome{out.fetch(), records.fetch(), {}};
      };
      expect_alike(gpu, make, params, warp, "warp of " + std::to_string(cols));
    }
  }
  // Every number of tokens, through all ties.
  constexpr std::int32_t kCols = 40;
  const Values logits = logits_of_all_kinds(kCols, 5);
  for (std::int32_t kept = 1; kept <= kCols; ++kept) {
    const auto in_place = [&](Backend& backend, RowSampler& sampler) {
      Copied<float> rows(backend, logits);
      Copied<RowRecord> records(backend, Records(kRowKinds));
      sampler.warp(shaped(rows.data(), kCols), shaped(rows.data(), kCols), records.data(), {});
      return Outcome{rows.fetch(), records.fetch(), {}};
    };
    expect_alike(gpu, make, {1.0F, kept}, in_place, "top-k in place");
    expect_alike(gpu, make, {1.0F, kCols - kept, static_cast<float>(kept) / (kCols + 1)}, in_place, "top-p in place");
  }
}

void expect_faults_of_the_host(Backend& gpu, const MakeSampler& make) {
  constexpr std::int64_t kCols = 1500;
  Values logits = logits_of_all_kinds(kCols, 3);
  logits[0] = kNan;
  std::fill_n(logits.begin() + 2 * kCols, kCols, -kInfinity);
  logits[4 * kCols + 1400] = kInfinity;
  for (const SamplingParams& params : {SamplingParams{}, {0.0F}, {0.8F, 20, 0.9F}}) {
    const auto warp_and_draw = [&](Backend& backend, RowSampler& sampler) {
      Copied<float> rows(backend, logits);
      Copied<RowRecord> records(backend, Records(kRowKinds, {.uniform = 0.5}));
      Copied<std::int32_t> tokens(backend, std::vector<std::int32_t>(kRowKinds));
      sampler.warp(shaped(rows.data(), kCols), shaped(rows.data(), kCols), records.data(), {});
      sampler.draw(shaped(rows.data(), kCols), records.data(), tokens.data(), {});
      const Records& found = records.fetch();
      for (const std::int64_t row : {0, 2, 4}) {
        EXPECT_EQ(found[row].token, -1);
        EXPECT_THAT(tests::bad_input([&] { require_sound(found[row]); }),
                    ::testing::StartsWith("logits are not finite"))
            << row;
      }
      EXPECT_NO_THROW(require_sound(found[1]));
      EXPECT_NO_THROW(require_sound(found[3]));
      return Outcome{rows.fetch(), found, tokens.fetch()};
    };
    expect_alike(gpu, make, params, warp_and_draw, "broken rows");
  }
  const auto by_sums = [&](Backend& backend, RowSampler& sampler) {
    Copied<float> rows(backend, logits);
    Copied<RowRecord> records(backend, Records(kRowKinds, {.uniform = 0.5}));
    const std::vector<Range> slices = {{0, 700}, {700, 700}, {700, kCols}};
    sampler.sums(shaped(rows.data(), kCols), slices, records.data(), {});
    sampler.warp_with_sums(shaped(rows.data(), kCols), shaped(rows.data(), kCols), records.data(), {});
    const Records& found = records.fetch();
    for (const std::int64_t row : {0, 2, 4}) {
      EXPECT_THROW(require_sound(found[row]), Error);
    }
    EXPECT_NO_THROW(require_sound(found[1]));
    return Outcome{rows.fetch(), found, {}};
  };
  expect_alike(gpu, make, {0.7F}, by_sums, "sums of broken rows");
}

void expect_sums_of_the_host(Backend& gpu, const MakeSampler& make) {
  for (const std::int64_t cols : {1, 2500}) {
    const Values logits = logits_of_all_kinds(cols, 11);
    std::vector<Range> slices;
    for (std::int64_t s = 0; s < 5; ++s) {
      slices.push_back({cols * s / 5, cols * (s + 1) / 5});
    }
    for (const float temperature : {0.05F, 1e4F}) {
      const auto probabilities = [&](Backend& backend, RowSampler& sampler) {
        Copied<float> in(backend, logits);
        Copied<float> out(backend, Values(logits.size()));
        Records questions(kRowKinds, {.asked = static_cast<std::int32_t>(cols / 3)});
        questions[1].asked = -1;
        questions[2].asked = static_cast<std::int32_t>(cols - 1);
        Copied<RowRecord> records(backend, questions);
        sampler.sums(shaped(in.data(), cols), slices, records.data(), {});
        sampler.warp_with_sums(shaped(in.data(), cols), shaped(out.data(), cols), records.data(), {});
        sampler.entries(shaped(out.data(), cols), records.data(), {});
        return Outcome{out.fetch(), records.fetch(), {}};
      };
      expect_alike(gpu, make, {temperature}, probabilities, "sums over " + std::to_string(cols));
    }
  }
}

void expect_residuals_of_the_host(Backend& gpu, const MakeSampler& make) {
  for (const std::int64_t cols : {1, 257, 2050}) {
    const Values p = probabilities_of(logits_of_all_kinds(cols, 21), cols, {0.9F});
    Values q = probabilities_of(logits_of_all_kinds(cols, 22), cols, {1.1F});
    std::copy_n(p.begin(), cols, q.begin());  // nothing is left of the first row
    q[cols - 1] = p[cols - 1] * 0.5F;         // but for one entry
    const auto subtract = [&](Backend& backend, RowSampler& sampler) {
      Copied<float> of_p(backend, p);
      Copied<float> of_q(backend, q);
      sampler.residuals(shaped(of_p.data(), cols), shaped(of_q.data(), cols), shaped(of_p.data(), cols), {});
      return Outcome{of_p.fetch(), {}, {}};
    };
    expect_alike(gpu, make, {}, subtract, "residual in place of p");
    const auto vanish = [&](Backend& backend, RowSampler& sampler) {
      Copied<float> of_p(backend, p);
      Copied<float> of_q(backend, p);
      sampler.residuals(shaped(of_p.data(), cols), shaped(of_q.data(), cols), shaped(of_q.data(), cols), {});
      return Outcome{of_q.fetch(), {}, {}};
    };
    expect_alike(gpu, make, {}, vanish, "residual that vanishes, in place of q");
    const auto less_a_point = [&](Backend& backend, RowSampler& sampler) {
      Copied<float> of_p(backend, p);
      Copied<float> of_q(backend, Values(p.size(), -1.0F));
      Copied<RowRecord> records(backend, Records(kRowKinds, {.asked = static_cast<std::int32_t>(cols / 3)}));
      sampler.point_masses(records.data(), shaped(of_q.data(), cols), {});
      sampler.residuals(shaped(of_p.data(), cols), shaped(of_q.data(), cols), shaped(of_p.data(), cols), {});
      Values both = of_p.fetch();
      std::ranges::copy(of_q.fetch(), std::back_inserter(both));
      return Outcome{both, {}, {}};
    };
    expect_alike(gpu, make, {}, less_a_point, "residual of a point mass");
  }
}

void expect_draws_of_the_host(Backend& gpu, const MakeSampler& make) {
  const auto draw = [&](const Values& weights, const std::vector<double>& uniforms) {
    const auto draw_all = [&](Backend& backend, RowSampler& sampler) {
      const auto cols = static_cast<std::int64_t>(weights.size());
      Copied<float> row(backend, weights);
      Records questions(uniforms.size());
      for (std::size_t i = 0; i < uniforms.size(); ++i) {
        questions[i].uniform = uniforms[i];
      }
      Copied<RowRecord> records(backend, questions);
      Copied<std::int32_t> tokens(backend, std::vector<std::int32_t>(uniforms.size(), -7));
      const auto rows = static_cast<std::int64_t>(uniforms.size());
      sampler.draw({row.data(), rows, cols, 0}, records.data(), tokens.data(), {});  // one row for all
      return Outcome{{}, records.fetch(), tokens.fetch()};
    };
    expect_alike(gpu, make, {}, draw_all, "draws from " + std::to_string(weights.size()));
  };
  std::mt19937_64 engine(31);
  const auto uniform = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
  std::vector<double> ends = {0.0, 0x1p-53, 0.25, 0.5, kAlmostOne, 1.0};
  for (const std::int64_t cols : {1, 2, 255, 256, 257, 5000}) {
    for (std::int64_t kind = 0; kind < kRowKinds; ++kind) {
      const Values rows = probabilities_of(logits_of_all_kinds(cols, 32), cols, {});
      Values weights(rows.begin() + kind * cols, rows.begin() + (kind + 1) * cols);
      draw(weights, ends);
    }
    draw(Values(cols, 0.0F), {0.0, 0.5});
  }
  std::vector<double> many = ends;
  std::generate_n(std::back_inserter(many), 1000, uniform);
  const Values rows = probabilities_of(logits_of_all_kinds(600, 33), 600, {0.8F});
  draw(Values(rows.begin(), rows.begin() + 600), many);
  // Uniforms at the edges of tokens, where the last bit of a sum decides; weights of which no sum is exact.
  for (int row = 0; row < 8; ++row) {
    Values weights(250);
    std::ranges::generate(
        weights, [&] { return std::ldexp(static_cast<float>(1 + uniform()), -static_cast<int>(36 * uniform())); });
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<double> edges;
    double running = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      running += static_cast<double>(weights[i]);
      if (i % 2 == 0) {
        edges.push_back(std::min(running / total, kAlmostOne));
      }
    }
    draw(weights, edges);
  }
  // Sums of eighths are exact, so that a multiple of 1/512 lies on the edge of a token, which is the next one's.
  Values eighths(512, 0.125F);
  std::vector<double> edges;
  for (int i = 0; i < 512; ++i) {
    edges.insert(edges.end(), {i / 512.0, std::nextafter(i / 512.0, 1.0)});
  }
  draw(eighths, edges);
}

void expect_argmax_of_the_host(Backend& gpu, const MakeSampler& make) {
  for (const std::int64_t cols : {1, 2, 1024, 1025, 5000}) {
    Values values = logits_of_all_kinds(cols, 41);
    std::fill_n(values.begin(), cols, kNan);
    values[2 * cols - 1] = values[cols + cols / 2] = 50;  // the first of two
    values[4 * cols - 1] = kInfinity;
    const auto find = [&](Backend& backend, RowSampler& sampler) {
      Copied<float> rows(backend, values);
      Copied<RowRecord> records(backend, Records(kRowKinds));
      Copied<std::int32_t> tokens(backend, std::vector<std::int32_t>(kRowKinds));
      sampler.argmax(shaped(rows.data(), cols), records.data(), tokens.data(), {});
      sampler.argmax(shaped(rows.data(), cols), records.data(), nullptr, {});
      Records found = records.fetch();
      found[0].weight = 0;  // a NaN
      return Outcome{{}, found, tokens.fetch()};
    };
    expect_alike(gpu, make, {0.0F}, find, "argmax of " + std::to_string(cols));
  }
}

void expect_what_was_drawn_handed_on(Backend& gpu, const MakeSampler& make) {
  constexpr std::size_t kMore = 40;  // than a warp has threads
  Records drawn(kMore);
  for (std::size_t i = 0; i < kMore; ++i) {
    drawn[i] = {.asked = 7, .token = static_cast<std::int32_t>(1000 - i)};
  }
  for (const bool asks : {true, false}) {
    const auto hand_on = [&](Backend& backend, RowSampler& sampler) {
      Copied<RowRecord> from(backend, drawn);
      Copied<RowRecord> asked(backend, Records(kMore + 1, {.uniform = 0.5}));
      Copied<std::int32_t> tokens(backend, std::vector<std::int32_t>(kMore + 1, 5));
      sampler.hand_on({from.data(), kMore}, asks ? asked.data() : nullptr, asks ? nullptr : tokens.data(), {});
      return Outcome{{}, asked.fetch(), tokens.fetch()};
    };
    expect_alike(gpu, make, {0.0F}, hand_on, asks ? "asked" : "tokens");
  }
}

}  // namespace specdec::battery
