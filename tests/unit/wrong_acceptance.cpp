/// Acceptance done wrongly, and its order with what is drawn next.
#include <algorithm>
#include <utility>

#include "backend/sampler.h"
#include "tests/unit/wrong_procedures.h"

namespace specdec::enumeration {
namespace {

/// Accepts drafted tokens one by one while `stands(u, p, q)`; the decision may change only at the numbers that
/// `breakpoints(p, q)` gives.
template <typename Stands, typename Breakpoints>
std::int64_t accept_while(const Block& block, Uniforms& uniforms, Stands stands, Breakpoints breakpoints) {
  std::int64_t accepted = 0;
  for (std::size_t i = 0; i < block.tokens.size(); ++i) {
    const auto p = static_cast<double>(block.p[i][at(block.tokens[i])]);
    const auto q = static_cast<double>(block.q[i][at(block.tokens[i])]);
    if (!stands(uniforms.next(breakpoints(p, q)), p, q)) {
      break;
    }
    ++accepted;
  }
  return accepted;
}

/// Accepts with probability `threshold(p, q)`.
template <typename Threshold>
std::int64_t accept_below(const Block& block, Uniforms& uniforms, Threshold threshold) {
  return accept_while(
      block, uniforms, [&](double u, double p, double q) { return u < threshold(p, q); },
      [&](double p, double q) { return std::vector<double>{threshold(p, q)}; });
}

class AcceptsAtEquality final : public SpeculativeStep {
 protected:
  std::int64_t accept(const Block& block, Uniforms& uniforms) const override {
    return accept_while(
        block, uniforms, [](double u, double p, double q) { return u <= p / q; },
        [](double p, double q) { return std::vector<double>{p / q}; });
  }
};

class AcceptsWithInverseRatio final : public SpeculativeStep {
 protected:
  std::int64_t accept(const Block& block, Uniforms& uniforms) const override {
    return accept_while(
        block, uniforms, [](double u, double p, double q) { return u * p < q; },
        [](double p, double q) { return std::vector<double>{q / p}; });
  }
};

class AcceptsWithTargetProbability final : public SpeculativeStep {
 protected:
  std::int64_t accept(const Block& block, Uniforms& uniforms) const override {
    return accept_below(block, uniforms, [](double p, double /*q*/) { return p; });
  }
};

class Lenient final : public SpeculativeStep {
 protected:
  std::int64_t accept(const Block& block, Uniforms& uniforms) const override {
    return accept_below(block, uniforms, [](double p, double q) { return p / (0.5 * q); });
  }
};

class OneUniformForAllPositions final : public SpeculativeStep {
 protected:
  std::int64_t accept(const Block& block, Uniforms& uniforms) const override {
    if (block.tokens.empty()) {
      return 0;
    }
    std::vector<double> ratios;
    for (std::size_t i = 0; i < block.tokens.size(); ++i) {
      const Token token = block.tokens[i];
      ratios.push_back(static_cast<double>(block.p[i][at(token)]) / static_cast<double>(block.q[i][at(token)]));
    }
    const double u = uniforms.next(ratios);
    return std::find_if(ratios.begin(), ratios.end(), [u](double ratio) { return u >= ratio; }) - ratios.begin();
  }
};

class RejectionDropsTheWholeBlock final : public SpeculativeStep {
 protected:
  std::int64_t accept(const Block& block, Uniforms& uniforms) const override {
    const std::int64_t accepted = SpeculativeStep::accept(block, uniforms);
    return accepted == static_cast<std::int64_t>(block.tokens.size()) ? accepted : 0;
  }
};

class UsesTheAcceptUniformAgain final : public SpeculativeStep {
 public:
  Sequence run(const World& world, std::int64_t k, Uniforms& uniforms) const override {
    const Block block = draft(world, k, uniforms);
    Sequence emitted;
    for (std::size_t i = 0; i < block.tokens.size(); ++i) {
      const Token token = block.tokens[i];
      const double ratio = static_cast<double>(block.p[i][at(token)]) / static_cast<double>(block.q[i][at(token)]);
      const Row residual = next_weights(block, static_cast<std::int64_t>(i));
      std::vector<double> breakpoints = breakpoints_of_draw(residual);
      breakpoints.push_back(ratio);
      const double u = uniforms.next(std::move(breakpoints));
      if (u >= ratio) {
        emitted.push_back(draw(residual, u));
        return emitted;
      }
      emitted.push_back(token);
    }
    emitted.push_back(draw_token(block.p.back(), uniforms));
    return emitted;
  }
};

class ContinuesAfterARejection final : public SpeculativeStep {
 public:
  Sequence run(const World& world, std::int64_t k, Uniforms& uniforms) const override {
    const Block block = draft(world, k, uniforms);
    Sequence emitted;
    for (std::size_t i = 0; i < block.tokens.size(); ++i) {
      const Block single{{block.tokens[i]}, {block.q[i]}, {block.p[i], block.p[i + 1]}};
      emitted.push_back(accept(single, uniforms) == 1 ? block.tokens[i]
                                                      : draw_token(next_weights(single, 0), uniforms));
    }
    emitted.push_back(draw_token(block.p.back(), uniforms));
    return emitted;
  }
};

}  // namespace

std::vector<Procedure> wrong_acceptance() {
  return {
      planted<AcceptsAtEquality>("AcceptsAtEquality", Fault::kAtZeroOnly),
      planted<AcceptsWithInverseRatio>("AcceptsWithInverseRatio"),
      planted<AcceptsWithTargetProbability>("AcceptsWithTargetProbability"),
      planted<Lenient>("Lenient"),
      planted<OneUniformForAllPositions>("OneUniformForAllPositions"),
      planted<RejectionDropsTheWholeBlock>("RejectionDropsTheWholeBlock"),
      planted<UsesTheAcceptUniformAgain>("UsesTheAcceptUniformAgain"),
      planted<ContinuesAfterARejection>("ContinuesAfterARejection"),
  };
}

}  // namespace specdec::enumeration
