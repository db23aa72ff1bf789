#include "tests/unit/wrong_procedures.h"

#include <algorithm>
#include <cmath>

#include "runtime/sampler.h"

namespace specdec::enumeration {
namespace {

std::size_t at(Token token) { return static_cast<std::size_t>(token); }

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

Row positive_part(const Row& p, const Row& q) {
  Row out(p.size());
  for (std::size_t x = 0; x < p.size(); ++x) {
    out[x] = std::max(p[x] - q[x], 0.0F);
  }
  return out;
}

/// A row without any weight cannot be drawn from; planted procedures then fall back to p, as the program does.
Row or_else(Row weights, const Row& fallback) {
  return std::any_of(weights.begin(), weights.end(), [](float w) { return w > 0.0F; }) ? weights : fallback;
}

// --- Right procedures ---

/// Drafting ends after a token that the draft itself thought unlikely; the token is verified like any other. Exact:
/// what has been sampled is never taken back, only what comes after it is decided by it.
class StopsAfterUnlikelyToken : public SpeculativeStep {
 protected:
  Block draft(const World& world, std::int64_t k, Uniforms& uniforms) const override {
    Block block;
    for (std::int64_t i = 0; i < k; ++i) {
      block.p.push_back(world.p(block.tokens));
      block.q.push_back(world.q(block.tokens));
      block.tokens.push_back(draw_token(block.q.back(), uniforms));
      if (block.q.back()[at(block.tokens.back())] <= 0.25F) {
        break;
      }
    }
    block.p.push_back(world.p(block.tokens));
    return block;
  }
};

/// Drafts the most likely token and says so: q is the point mass on it.
class DeterministicDraft : public SpeculativeStep {
 protected:
  Block draft(const World& world, std::int64_t k, Uniforms& /*uniforms*/) const override {
    Block block;
    for (std::int64_t i = 0; i < k; ++i) {
      const Token token = argmax(world.q(block.tokens));
      Row mass(static_cast<std::size_t>(world.vocabulary), 0.0F);
      mass[at(token)] = 1.0F;
      block.p.push_back(world.p(block.tokens));
      block.q.push_back(std::move(mass));
      block.tokens.push_back(token);
    }
    block.p.push_back(world.p(block.tokens));
    return block;
  }
};

// --- Wrong ones: the draft ---

class DropsUnlikelyToken final : public StopsAfterUnlikelyToken {
 protected:
  Block draft(const World& world, std::int64_t k, Uniforms& uniforms) const override {
    Block block = StopsAfterUnlikelyToken::draft(world, k, uniforms);
    if (!block.tokens.empty() && block.q.back()[at(block.tokens.back())] <= 0.25F) {
      block.tokens.pop_back();
      block.q.pop_back();
      block.p.pop_back();
    }
    return block;
  }
};

class ComparesArgmaxOfDeterministicDraft final : public DeterministicDraft {
 protected:
  std::int64_t accept(const Block& block, Uniforms& /*uniforms*/) const override {
    std::int64_t accepted = 0;
    while (at(static_cast<Token>(accepted)) < block.tokens.size() &&
           block.tokens[accepted] == argmax(block.p[accepted])) {
      ++accepted;
    }
    return accepted;
  }
};

class DeterministicDraftWithSampledRow final : public DeterministicDraft {
 protected:
  Block draft(const World& world, std::int64_t k, Uniforms& uniforms) const override {
    Block block = DeterministicDraft::draft(world, k, uniforms);
    Sequence prefix;
    for (std::size_t i = 0; i < block.tokens.size(); ++i) {
      block.q[i] = world.q(prefix);
      prefix.push_back(block.tokens[i]);
    }
    return block;
  }
};

class DraftRowOffByOne final : public SpeculativeStep {
 protected:
  Block draft(const World& world, std::int64_t k, Uniforms& uniforms) const override {
    Block block = SpeculativeStep::draft(world, k, uniforms);
    for (std::size_t i = 0; i < block.q.size(); ++i) {
      block.q[i] = i == 0 ? block.q[0] : world.q({block.tokens.begin(), block.tokens.begin() + i - 1});
      // A drafted token has a probability under its draft, or the program itself would stop.
      block.q[i][at(block.tokens[i])] = std::max(block.q[i][at(block.tokens[i])], 0.0625F);
    }
    return block;
  }
};

class TemperatureOnOneSide final : public SpeculativeStep {
 protected:
  Block draft(const World& world, std::int64_t k, Uniforms& uniforms) const override {
    Block block;
    for (std::int64_t i = 0; i < k; ++i) {
      const Row& q = world.q(block.tokens);
      Row sharpened(q.size());
      std::transform(q.begin(), q.end(), sharpened.begin(), [](float value) { return value * value; });
      block.p.push_back(world.p(block.tokens));
      block.q.push_back(q);
      block.tokens.push_back(draw_token(sharpened, uniforms));
    }
    block.p.push_back(world.p(block.tokens));
    return block;
  }
};

class TargetRowOffByOne final : public SpeculativeStep {
 protected:
  Block draft(const World& world, std::int64_t k, Uniforms& uniforms) const override {
    Block block = SpeculativeStep::draft(world, k, uniforms);
    std::rotate(block.p.begin(), block.p.end() - 1, block.p.end());
    return block;
  }
};

// --- Wrong ones: acceptance ---

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

// --- Wrong ones: what is drawn next ---

class ResamplesFromTarget final : public SpeculativeStep {
 protected:
  Row next_weights(const Block& block, std::int64_t accepted) const override { return block.p[accepted]; }
};

class ResidualNotRenormalised final : public SpeculativeStep {
 protected:
  // u is held against the running sum of a residual that sums to less than 1; what falls off the end becomes the last
  // token.
  Row next_weights(const Block& block, std::int64_t accepted) const override {
    Row weights = SpeculativeStep::next_weights(block, accepted);
    for (const float weight : Row(weights)) {
      weights.back() -= weight;
    }
    weights.back() += 1.0F;
    return weights;
  }
};

class ResidualOfMagnitudes final : public SpeculativeStep {
 protected:
  Row next_weights(const Block& block, std::int64_t accepted) const override {
    Row weights = block.p[accepted];
    if (at(static_cast<Token>(accepted)) < block.q.size()) {
      for (std::size_t x = 0; x < weights.size(); ++x) {
        weights[x] = std::abs(weights[x] - block.q[accepted][x]);
      }
    }
    return or_else(weights, block.p[accepted]);
  }
};

class ResidualFromNextDraftRow final : public SpeculativeStep {
 protected:
  Row next_weights(const Block& block, std::int64_t accepted) const override {
    const auto row = static_cast<std::size_t>(accepted) + 1;
    return row < block.q.size() ? or_else(positive_part(block.p[accepted], block.q[row]), block.p[accepted])
                                : SpeculativeStep::next_weights(block, accepted);
  }
};

class BestOfResidual final : public SpeculativeStep {
 protected:
  Token next_token(const Row& weights, Uniforms& /*uniforms*/) const override { return argmax(weights); }
};

class DrawsAtEquality final : public SpeculativeStep {
 protected:
  Token next_token(const Row& weights, Uniforms& uniforms) const override {
    const std::vector<double> sums = breakpoints_of_draw(weights);
    const double u = uniforms.next(sums);
    return static_cast<Token>(std::find_if(sums.begin(), sums.end(), [u](double sum) { return sum >= u; }) -
                              sums.begin());
  }
};

class ExcludesOnlyTheDraftedToken final : public SpeculativeStep {
 protected:
  // Right for a point mass, and for nothing else.
  Row next_weights(const Block& block, std::int64_t accepted) const override {
    Row weights = block.p[accepted];
    if (at(static_cast<Token>(accepted)) < block.tokens.size()) {
      weights[at(block.tokens[accepted])] = 0.0F;
    }
    return or_else(weights, block.p[accepted]);
  }
};

class BonusFromTheRowBefore final : public SpeculativeStep {
 protected:
  Row next_weights(const Block& block, std::int64_t accepted) const override {
    const bool bonus = accepted > 0 && at(static_cast<Token>(accepted)) == block.tokens.size();
    return bonus ? block.p[accepted - 1] : SpeculativeStep::next_weights(block, accepted);
  }
};

class BonusFromDraft final : public SpeculativeStep {
 public:
  Sequence run(const World& world, std::int64_t k, Uniforms& uniforms) const override {
    const Block block = draft(world, k, uniforms);
    const std::int64_t accepted = accept(block, uniforms);
    Sequence emitted(block.tokens.begin(), block.tokens.begin() + accepted);
    const bool bonus = at(static_cast<Token>(accepted)) == block.tokens.size();
    emitted.push_back(draw_token(bonus ? world.q(block.tokens) : next_weights(block, accepted), uniforms));
    return emitted;
  }
};

class EmitsPaddedVocabulary final : public SpeculativeStep {
 protected:
  Row next_weights(const Block& block, std::int64_t accepted) const override {
    Row weights = SpeculativeStep::next_weights(block, accepted);
    weights.push_back(0.125F);  // logit 0 of a row that only fills up the vocabulary
    return weights;
  }
};

/// The target's top-p set is where p > 0; before truncation a quarter of its mass lies outside. Acceptance and residual
/// see the row before truncation, and only what is left of it is truncated.
class TruncatesAfterTheResidual final : public SpeculativeStep {
 protected:
  std::int64_t accept(const Block& block, Uniforms& uniforms) const override {
    return SpeculativeStep::accept(whole(block), uniforms);
  }
  Row next_weights(const Block& block, std::int64_t accepted) const override {
    Row weights = SpeculativeStep::next_weights(whole(block), accepted);
    for (std::size_t x = 0; x < weights.size(); ++x) {
      weights[x] = block.p[accepted][x] > 0.0F ? weights[x] : 0.0F;
    }
    return or_else(weights, block.p[accepted]);
  }

 private:
  static Block whole(Block block) {
    for (Row& row : block.p) {
      const auto outside = static_cast<float>(std::count(row.begin(), row.end(), 0.0F));
      if (outside > 0) {
        std::transform(row.begin(), row.end(), row.begin(),
                       [outside](float p) { return p > 0.0F ? 0.75F * p : 0.25F / outside; });
      }
    }
    return block;
  }
};

// --- Wrong ones: the order of things ---

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

template <typename Step>
Procedure planted(const char* name, Fault fault = Fault::kInProbability) {
  return {name, std::make_shared<const Step>(), fault};
}

}  // namespace

std::vector<Procedure> right_procedures() {
  return {
      planted<SpeculativeStep>("SpeculativeStep", Fault::kNone),
      planted<StopsAfterUnlikelyToken>("StopsAfterUnlikelyToken", Fault::kNone),
      planted<DeterministicDraft>("DeterministicDraft", Fault::kNone),
  };
}

std::vector<Procedure> wrong_procedures() {
  return {
      planted<DropsUnlikelyToken>("DropsUnlikelyToken"),
      planted<ComparesArgmaxOfDeterministicDraft>("ComparesArgmaxOfDeterministicDraft"),
      planted<DeterministicDraftWithSampledRow>("DeterministicDraftWithSampledRow"),
      planted<DraftRowOffByOne>("DraftRowOffByOne"),
      planted<TemperatureOnOneSide>("TemperatureOnOneSide"),
      planted<TargetRowOffByOne>("TargetRowOffByOne"),
      planted<AcceptsAtEquality>("AcceptsAtEquality", Fault::kAtZeroOnly),
      planted<AcceptsWithInverseRatio>("AcceptsWithInverseRatio"),
      planted<AcceptsWithTargetProbability>("AcceptsWithTargetProbability"),
      planted<Lenient>("Lenient"),
      planted<OneUniformForAllPositions>("OneUniformForAllPositions"),
      planted<RejectionDropsTheWholeBlock>("RejectionDropsTheWholeBlock"),
      planted<ResamplesFromTarget>("ResamplesFromTarget"),
      planted<ResidualNotRenormalised>("ResidualNotRenormalised"),
      planted<ResidualOfMagnitudes>("ResidualOfMagnitudes"),
      planted<ResidualFromNextDraftRow>("ResidualFromNextDraftRow"),
      planted<BestOfResidual>("BestOfResidual"),
      planted<DrawsAtEquality>("DrawsAtEquality", Fault::kAtZeroOnly),
      planted<ExcludesOnlyTheDraftedToken>("ExcludesOnlyTheDraftedToken"),
      planted<BonusFromTheRowBefore>("BonusFromTheRowBefore"),
      planted<BonusFromDraft>("BonusFromDraft"),
      planted<EmitsPaddedVocabulary>("EmitsPaddedVocabulary"),
      planted<TruncatesAfterTheResidual>("TruncatesAfterTheResidual"),
      planted<UsesTheAcceptUniformAgain>("UsesTheAcceptUniformAgain"),
      planted<ContinuesAfterARejection>("ContinuesAfterARejection"),
  };
}

}  // namespace specdec::enumeration
