#include "runtime/agreement.h"

#include <fmt/format.h>

#include <string>

#include "parallel/disagreement.h"

namespace specdec {
namespace {

[[noreturn]] void disagree(const Round& round, const std::string& what) {
  throw Disagreement(fmt::format("{} (sequence {}, round {})", what, round.sequence, round.number));
}

}  // namespace

void Agreement::begin(std::span<const Token> cached) {
  history_ = {};
  expected_kept_.reset();
  commit(cached);
}

void Agreement::commit(std::span<const Token> tokens) {
  for (const Token token : tokens) {
    history_.add(static_cast<std::uint64_t>(token));
  }
}

void Agreement::check_round(const Round& round) const {
  if (!configuration_) {
    return;
  }
  if (hash_of(round) != round.fingerprint.message) {
    disagree(round, "the round's message is not what rank 0 sent");
  }
  if (round.action != RoundAction::kEnd && *configuration_ != round.fingerprint.configuration) {
    disagree(round, "the configuration (settings, seed, models or build) is not rank 0's");
  }
  if (round.action == RoundAction::kScore && expected_kept_ && round.kept != *expected_kept_) {
    disagree(round, fmt::format("{} rows of the last round stand by this rank's decision, {} by rank 0's",
                                *expected_kept_, round.kept));
  }
}

void Agreement::check_cache(const Round& round, std::int64_t cached) const {
  if (!configuration_) {
    return;
  }
  const Fingerprint& expected = round.fingerprint;
  if (cached != expected.cached) {
    disagree(round, fmt::format("the KV cache holds {} tokens, rank 0's {}", cached, expected.cached));
  }
  if (history_.value() != expected.history) {
    disagree(round, "the token history is not rank 0's");
  }
}

}  // namespace specdec
