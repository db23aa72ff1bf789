#pragma once

#include <string>
#include <vector>

#include "tests/support/decode_harness.h"

namespace specdec::tests {

/// A target, a draft for it, and prompts with ends that matter.
struct GreedySubject {
  std::string name;
  std::filesystem::path target;
  std::filesystem::path draft;
  DType dtype = DType::kBF16;
  struct Prompt {
    std::vector<Token> ids;
    EndRules rules;
  };
  std::vector<Prompt> prompts;
  std::vector<DecodeResult> reference;  ///< autoregressive on one rank, per prompt
  MakeBackend make_backend;             ///< on every rank, the reference's too; as DecodeCase's
};

/// Models that write_random_model makes below `directory`, with prompts that run to the limit, over an EOS, to a stop string and to the end
/// of the context; `family` as in RandomModel.
GreedySubject make_random_subject(const std::string& family, const std::filesystem::path& directory,
                                  DType dtype = DType::kBF16, MakeBackend make_backend = {});
/// The shipped pair, with weights of `dtype`.
GreedySubject make_shipped_subject(DType dtype = DType::kBF16);

/// On every rank of `group`: speculative greedy decoding of the subject's prompts, with every K in `ks` and every kind of draft, gives the
/// tokens, the finish reason and every bit of every logit behind them that autoregressive decoding on one rank gives.
/// Failures are GoogleTest expectations. Returns how many drafted tokens were accepted and rejected in all (on rank 0), so that
/// a test can see that both happened.
struct GreedyCoverage {
  std::int64_t accepted = 0;
  std::int64_t rejected = 0;
  std::int64_t runs = 0;
};
GreedyCoverage expect_greedy_bits(Communicator& group, const GreedySubject& subject,
                                  const std::vector<std::int64_t>& ks, int threads);

}  // namespace specdec::tests
