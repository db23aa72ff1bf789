#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/factory.h"
#include "backend/sampler.h"
#include "models/transformer.h"
#include "parallel/self_communicator.h"
#include "parallel/timed_communicator.h"
#include "runtime/config.h"
#include "runtime/coordinator.h"

/// Runs the real decoding loop on every rank of a group, as a program would, and keeps what it showed.
namespace specdec::tests {

enum class DraftKind : std::uint8_t {
  kNone,    ///< autoregressive
  kModel,   ///< the model in `draft`
  kRandom,  ///< uniform tokens, drawn with q = 1 / vocabulary (a point mass each when greedy)
  kTarget,  ///< the target itself, on one rank
};

using MakeBackend = std::function<std::unique_ptr<Backend>()>;

struct DecodeCase {
  std::filesystem::path target;
  std::filesystem::path draft;
  DraftKind kind = DraftKind::kNone;
  std::int64_t k = 0;
  DraftLengthRule draft_length = DraftLengthRule::kFixed;
  std::vector<double> loop_times;  ///< for kOptimal
  SamplingParams sampling{.temperature = 0};
  std::uint64_t seed = 0;
  DType dtype = DType::kBF16;
  int threads = 1;
  EndRules rules;
  MakeBackend make_backend;  ///< nothing: the CPU's, of `threads`
};

/// What a rank does to what it is sent, before it acts on it.
struct Tampering {
  std::function<void(Round&)> round;
  std::function<void(std::vector<Token>&)> prompt;
};

struct DecodeResult {
  std::vector<Token> tokens;      ///< on rank 0
  std::string finish_reason;      ///< on rank 0
  std::vector<LoopRecord> loops;  ///< on rank 0
  Range vocabulary;               ///< of this rank's logits
  std::map<std::int64_t, std::vector<float>>
      logits;  ///< by position, the last pass over it: that of the token which stood
};

/// A job on one rank: models loaded once, many prompts and settings run through it. Every rank of `group` makes one and calls
/// run() with the same arguments.
class DecodeRank {
 public:
  DecodeRank(Communicator& group, const DecodeCase& base);
  ~DecodeRank();

  /// `keep_logits`: fill DecodeResult::logits.
  DecodeResult run(const DecodeCase& settings, const std::vector<Token>& prompt, std::uint32_t sequence,
                   bool keep_logits);
  /// As run() on a rank other than 0, which does not do as it is told.
  void follow(const DecodeCase& settings, const Tampering& tampering);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace specdec::tests
