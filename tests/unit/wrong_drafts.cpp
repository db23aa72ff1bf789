/// Right procedures that draft in another way, and those that look like them.
#include <algorithm>
#include <utility>

#include "backend/sampler.h"
#include "tests/unit/wrong_procedures.h"

namespace specdec::enumeration {
namespace {

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

}  // namespace

std::vector<Procedure> right_procedures() {
  return {
      planted<SpeculativeStep>("SpeculativeStep", Fault::kNone),
      planted<StopsAfterUnlikelyToken>("StopsAfterUnlikelyToken", Fault::kNone),
      planted<DeterministicDraft>("DeterministicDraft", Fault::kNone),
  };
}

std::vector<Procedure> wrong_drafts() {
  return {
      planted<DropsUnlikelyToken>("DropsUnlikelyToken"),
      planted<ComparesArgmaxOfDeterministicDraft>("ComparesArgmaxOfDeterministicDraft"),
      planted<DeterministicDraftWithSampledRow>("DeterministicDraftWithSampledRow"),
      planted<DraftRowOffByOne>("DraftRowOffByOne"),
      planted<TemperatureOnOneSide>("TemperatureOnOneSide"),
      planted<TargetRowOffByOne>("TargetRowOffByOne"),
  };
}

}  // namespace specdec::enumeration
