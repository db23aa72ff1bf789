#pragma once

#include <vector>

#include "backend/sampler.h"
#include "models/transformer.h"
#include "runtime/drafter.h"
#include "runtime/philox.h"

namespace specdec {

/// A small autoregressive model as drafter, warped as the target is (Leviathan et al. 2023, section 2.2).
class ModelDrafter final : public Drafter {
 public:
  /// `level` keys its random numbers: 1 drafts for the target, 2 for that draft.
  ModelDrafter(Transformer& model, const SamplingParams& sampling, std::uint64_t seed, std::uint8_t level = 1,
               Tracer* tracer = nullptr);

  void begin(std::uint32_t sequence, std::span<const Token> prompt) override;
  void propose(std::uint32_t round, std::span<const Token> history, std::int64_t k, DraftBlock& block) override;
  std::int64_t room(std::int64_t history_size) const override;

 private:
  /// Feeds tokens as a chain and returns the last row's logits.
  ConstRows feed(std::span<const Token> tokens);
  void choose(ConstRows logits, const RandomKey& key, DraftBlock& block);

  Transformer& model_;
  KvCache cache_;
  Sampler sampler_;
  std::uint64_t seed_;
  std::uint8_t level_;
  Tracer* tracer_;
  std::uint32_t sequence_ = 0;
  std::vector<Token> pending_;  ///< tokens of the cache's pending rows
  std::vector<std::int32_t> position_;
  std::vector<std::int32_t> parent_;
  std::vector<float> logits_;  ///< one row on the host
};

}  // namespace specdec
