/// Wrong tokens after the accepted ones: resampled or added.
#include <algorithm>
#include <cmath>

#include "backend/sampler.h"
#include "tests/unit/wrong_procedures.h"

namespace specdec::enumeration {
namespace {

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

}  // namespace

std::vector<Procedure> wrong_next_tokens() {
  return {
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
  };
}

}  // namespace specdec::enumeration
