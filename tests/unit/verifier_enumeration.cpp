#include "tests/unit/verifier_enumeration.h"

#include <algorithm>
#include <cmath>

#include "backend/error.h"
#include "backend/sampler.h"

namespace specdec::enumeration {

const Row& World::pick(const std::vector<Row>& rows, const Sequence& prefix) {
  const std::size_t last = prefix.empty() ? 0 : static_cast<std::size_t>(prefix.back());
  return rows[(7 * prefix.size() + 3 * last) % rows.size()];
}

double Uniforms::next(std::vector<double> breakpoints) {
  if (asked_ == digits_.size()) {
    std::erase_if(breakpoints, [](double at) { return !(at > 0.0 && at < 1.0); });
    breakpoints.push_back(0.0);
    breakpoints.push_back(1.0);
    std::sort(breakpoints.begin(), breakpoints.end());
    breakpoints.erase(std::unique(breakpoints.begin(), breakpoints.end()), breakpoints.end());
    digits_.push_back({std::move(breakpoints), 0});
  }
  const Digit& digit = digits_[asked_++];
  const double low = digit.edges[digit.interval];
  const double high = digit.edges[digit.interval + 1];
  // Just inside the edge: an edge is a rounded quotient, and on which side of the true one it fell is nobody's concern.
  const double margin = 1e-6 * (high - low);
  switch (where_) {
    case Representative::kLow:
      return low == 0.0 ? 0.0 : low + margin;
    case Representative::kHigh:
      return high == 1.0 ? 1.0 - 0x1p-53 : high - margin;
    case Representative::kMiddle:
      break;
  }
  return 0.5 * (low + high);
}

double Uniforms::weight() const {
  double product = 1;
  for (const Digit& digit : digits_) {
    product *= digit.edges[digit.interval + 1] - digit.edges[digit.interval];
  }
  return product;
}

bool Uniforms::advance() {
  check(asked_ == digits_.size(), "a step asks for the same uniforms when they have the same values");
  asked_ = 0;
  while (!digits_.empty()) {
    Digit& digit = digits_.back();
    if (++digit.interval + 1 < digit.edges.size()) {
      return true;
    }
    digits_.pop_back();
  }
  return false;
}

std::vector<double> breakpoints_of_draw(const Row& weights) {
  std::vector<double> sums;
  double sum = 0;
  for (const float weight : weights) {
    sum += static_cast<double>(weight);
    sums.push_back(sum);
  }
  for (double& at : sums) {
    at /= sum;
  }
  return sums;
}

Token draw_token(const Row& weights, Uniforms& uniforms) {
  return draw(weights, uniforms.next(breakpoints_of_draw(weights)));
}

Sequence SpeculativeStep::run(const World& world, std::int64_t k, Uniforms& uniforms) const {
  const Block block = draft(world, k, uniforms);
  const std::int64_t accepted = accept(block, uniforms);
  Sequence emitted(block.tokens.begin(), block.tokens.begin() + accepted);
  emitted.push_back(next_token(next_weights(block, accepted), uniforms));
  return emitted;
}

Block SpeculativeStep::draft(const World& world, std::int64_t k, Uniforms& uniforms) const {
  Block block;
  for (std::int64_t i = 0; i < k; ++i) {
    block.p.push_back(world.p(block.tokens));
    block.q.push_back(world.q(block.tokens));
    block.tokens.push_back(draw_token(block.q.back(), uniforms));
  }
  block.p.push_back(world.p(block.tokens));
  return block;
}

std::int64_t SpeculativeStep::accept(const Block& block, Uniforms& uniforms) const {
  std::vector<DraftedEntry> entries;
  std::vector<double> values;
  for (std::size_t i = 0; i < block.tokens.size(); ++i) {
    const auto token = static_cast<std::size_t>(block.tokens[i]);
    const DraftedEntry entry{block.p[i][token], block.q[i][token]};
    const double p = static_cast<double>(entry.p);
    const double q = static_cast<double>(entry.q);
    entries.push_back(entry);
    // More than p / q, where a right verifier decides: a wrong one that decides elsewhere must not hide between the
    // breakpoints.
    values.push_back(uniforms.next({p / q, q / p, p, q}));
  }
  return verifier_.accept({block.tokens, entries, {}, {}, static_cast<std::int64_t>(block.p[0].size())}, values);
}

Row SpeculativeStep::next_weights(const Block& block, std::int64_t accepted) const {
  const auto at = static_cast<std::size_t>(accepted);
  Row out(block.p[at].size());
  verifier_.next_weights(accepted, block.p[at], at < block.q.size() ? block.q[at] : Row{}, out);
  return out;
}

namespace {

/// Adds `weight` to every continuation of `prefix` to `length` tokens, shared out as the target alone would.
void continue_with_target(const World& world, Sequence prefix, double weight, std::int64_t length, Distribution& out) {
  const bool complete = static_cast<std::int64_t>(prefix.size()) >= length;
  const bool foreign = !prefix.empty() && prefix.back() >= world.vocabulary;
  if (complete || foreign) {
    out[prefix] += weight;
    return;
  }
  const Row& row = world.p(prefix);
  for (std::int64_t x = 0; x < world.vocabulary; ++x) {
    if (row[static_cast<std::size_t>(x)] > 0.0F) {
      Sequence longer = prefix;
      longer.push_back(static_cast<Token>(x));
      continue_with_target(world, std::move(longer), weight * static_cast<double>(row[static_cast<std::size_t>(x)]),
                           length, out);
    }
  }
}

}  // namespace

Distribution speculative_distribution(const SpeculativeStep& step, const World& world, std::int64_t k,
                                      Representative where) {
  Distribution emitted;
  Uniforms uniforms(where);
  do {
    Sequence sequence = step.run(world, k, uniforms);
    emitted[std::move(sequence)] += uniforms.weight();
  } while (uniforms.advance());

  Distribution out;
  for (const auto& [sequence, weight] : emitted) {
    continue_with_target(world, sequence, weight, k + 1, out);
  }
  return out;
}

Distribution target_distribution(const World& world, std::int64_t length) {
  Distribution out;
  continue_with_target(world, {}, 1.0, length, out);
  return out;
}

double total_variation(const Distribution& a, const Distribution& b) {
  double sum = 0;
  for (const auto& [sequence, weight] : a) {
    const auto found = b.find(sequence);
    sum += std::abs(weight - (found == b.end() ? 0.0 : found->second));
  }
  for (const auto& [sequence, weight] : b) {
    sum += a.contains(sequence) ? 0.0 : weight;
  }
  return 0.5 * sum;
}

Verdict judge(const SpeculativeStep& step) {
  Verdict verdict;
  for (const World& world : worlds()) {
    // What vocabulary 4 could show at K = 3, vocabularies 2 and 3 show as well, with far fewer outcomes.
    const std::int64_t max_k = world.vocabulary == 4 ? 2 : 3;
    for (std::int64_t k = 0; k <= max_k; ++k) {
      const Distribution expected = target_distribution(world, k + 1);
      const Distribution middle = speculative_distribution(step, world, k, Representative::kMiddle);
      verdict.total_variation = std::max(verdict.total_variation, total_variation(middle, expected));
      for (const auto where : {Representative::kLow, Representative::kMiddle, Representative::kHigh}) {
        const Distribution found = speculative_distribution(step, world, k, where);
        const bool outside =
            std::any_of(found.begin(), found.end(), [&](const auto& entry) { return !expected.contains(entry.first); });
        verdict.spread = std::max(verdict.spread, total_variation(found, middle));
        verdict.left_support = verdict.left_support || outside;
        if (verdict.where.empty() && !verdict.exact()) {
          verdict.where = world.name + ", K = " + std::to_string(k);
        }
      }
    }
  }
  return verdict;
}

std::vector<Row> dyadic_rows(std::int64_t vocabulary, int denominator) {
  std::vector<Row> rows;
  std::vector<int> parts(static_cast<std::size_t>(vocabulary), 0);
  // All numbers of `vocabulary` digits in base denominator + 1 whose digits sum to the denominator.
  for (;;) {
    int sum = 0;
    Row row;
    for (const int part : parts) {
      sum += part;
      row.push_back(static_cast<float>(part) / static_cast<float>(denominator));
    }
    if (sum == denominator) {
      rows.push_back(row);
    }
    std::size_t digit = 0;
    while (digit < parts.size() && ++parts[digit] > denominator) {
      parts[digit++] = 0;
    }
    if (digit == parts.size()) {
      return rows;
    }
  }
}

std::vector<World> worlds() {
  std::vector<World> out;
  for (const std::int64_t vocabulary : {2, 3, 4}) {
    const std::vector<Row> rows = dyadic_rows(vocabulary, 4);
    const std::size_t count = rows.size();
    const std::size_t stride = vocabulary == 4 ? 5 : 1;  // 4 is there for its size, 2 and 3 go through all pairs
    for (std::size_t i = 0; i < count; i += stride) {
      for (std::size_t j = 0; j < count; j += stride) {
        World world;
        world.name =
            "vocabulary " + std::to_string(vocabulary) + ", rows " + std::to_string(i) + " and " + std::to_string(j);
        world.vocabulary = vocabulary;
        // Different strides for p and q, so that their supports meet in all ways; i == j starts with p == q.
        for (std::size_t turn = 0; turn < count; ++turn) {
          world.rows_p.push_back(rows[(i + turn) % count]);
          world.rows_q.push_back(rows[(j + 2 * turn) % count]);
        }
        out.push_back(std::move(world));
      }
      World same{
          "vocabulary " + std::to_string(vocabulary) + ", p == q from row " + std::to_string(i), vocabulary, {}, {}};
      for (std::size_t turn = 0; turn < count; ++turn) {
        same.rows_p.push_back(rows[(i + turn) % count]);
      }
      same.rows_q = same.rows_p;
      out.push_back(std::move(same));
    }
  }
  out.push_back(
      {"disjoint", 4, {{0.5F, 0.5F, 0, 0}, {0.25F, 0.75F, 0, 0}}, {{0, 0, 0.5F, 0.5F}, {0, 0, 0.125F, 0.875F}}});
  out.push_back({"point masses that agree", 3, {{0, 1, 0}}, {{0, 1, 0}}});
  out.push_back({"point masses that differ", 3, {{0, 1, 0}}, {{0, 0, 1}}});
  out.push_back(
      {"point-mass draft", 3, {{0.5F, 0.25F, 0.25F}, {0.125F, 0, 0.875F}}, {{1, 0, 0}, {0, 0, 1}, {0, 1, 0}}});
  out.push_back({"sixteenths",
                 3,
                 {{0.4375F, 0.5F, 0.0625F}, {0.1875F, 0.3125F, 0.5F}},
                 {{0.0625F, 0.1875F, 0.75F}, {0.625F, 0, 0.375F}}});
  return out;
}

}  // namespace specdec::enumeration
