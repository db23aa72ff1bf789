/// Ranks that do not hold what rank 0 holds find out in the same round, always, and never otherwise (docs/protocol.md, "Agreement").
#include "runtime/agreement.h"

#include <gtest/gtest.h>

#include <functional>
#include <mutex>

#include "parallel/disagreement.h"
#include "parallel/thread_communicator.h"
#include "runtime/job.h"
#include "tests/support/decode_harness.h"
#include "tests/support/random_model.h"

namespace specdec::tests {
namespace {

constexpr std::uint64_t kConfiguration = 77;

Round some_round() {
  Round round{.action = RoundAction::kScore,
              .sequence = 3,
              .number = 5,
              .kept = 2,
              .count = 9,
              .rows = {{.token = 11, .parent = -1, .q = 0}, {.token = 12, .parent = 0, .q = 0.25F}}};
  round.fingerprint.configuration = kConfiguration;
  return round;
}

/// As rank 0 completes it.
Round sealed(Round round) {
  round.fingerprint.message = hash_of(round);
  return round;
}

std::string complaint(const std::function<void()>& act) {
  try {
    act();
  } catch (const Disagreement& error) {
    return error.what();
  }
  return "";
}

TEST(RunningHash, EverySingleWordShows) {
  std::vector<std::uint64_t> words(40, 0);
  const auto hash = [&] {
    RunningHash running;
    for (const std::uint64_t word : words) {
      running.add(word);
    }
    return running.value();
  };
  const std::uint64_t whole = hash();
  for (std::uint64_t& word : words) {
    for (int bit = 0; bit < 64; ++bit) {
      word ^= std::uint64_t{1} << bit;
      EXPECT_NE(hash(), whole);
      word = 0;
    }
  }
  words.pop_back();
  EXPECT_NE(hash(), whole) << "a word less, though all are 0";
}

TEST(RunningHash, BytesEndWhereTheyEnd) {
  const auto hash = [](std::string_view first, std::string_view second) {
    RunningHash running;
    running.add(std::as_bytes(std::span(first)));
    running.add(std::as_bytes(std::span(second)));
    return running.value();
  };
  EXPECT_NE(hash("ab", "c"), hash("a", "bc"));
  EXPECT_NE(hash(std::string_view("\0", 1), ""), hash("", ""));
  EXPECT_EQ(hash("123456789", "x"), hash("123456789", "x"));
}

TEST(Agreement, HoldsForARoundAsItWasSent) {
  Agreement agreement(kConfiguration);
  Round round = some_round();
  EXPECT_EQ(complaint([&] { agreement.check_round(sealed(round)); }), "");
  agreement.expect_kept(2);
  EXPECT_EQ(complaint([&] { agreement.check_round(sealed(round)); }), "");
}

TEST(Agreement, NoFieldOfAMessageChangesUnseen) {
  const Agreement agreement(kConfiguration);
  const std::vector<std::function<void(Round&)>> changes = {
      [](Round& r) { r.action = RoundAction::kEnd; },
      [](Round& r) { r.action = RoundAction::kBegin; },
      [](Round& r) { r.sequence ^= 1; },
      [](Round& r) { r.number ^= 0x80000000U; },
      [](Round& r) { r.kept ^= 4; },
      [](Round& r) { r.count ^= 1; },
      [](Round& r) { r.interconnect ^= 1; },
      [](Round& r) { r.rows[0].token ^= 1; },
      [](Round& r) { r.rows[1].token ^= 0x4000; },
      [](Round& r) { r.rows[1].parent ^= 1; },
      [](Round& r) { r.rows[1].q = 0.26F; },
      [](Round& r) { r.rows.pop_back(); },
      [](Round& r) { r.rows.push_back({}); },
      [](Round& r) { std::swap(r.rows[0], r.rows[1]); },
      [](Round& r) { std::swap(r.sequence, r.number); },
      [](Round& r) { r.fingerprint.message ^= 1; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Round round = sealed(some_round());
    changes[i](round);
    EXPECT_EQ(complaint([&] { agreement.check_round(round); }).find("the round's message is not what rank 0 sent"), 0U)
        << "change " << i;
  }
}

TEST(Agreement, AnotherConfigurationShowsBeforeThePrompt) {
  const Agreement agreement(kConfiguration + 1);
  Round round = some_round();
  round.action = RoundAction::kBegin;
  EXPECT_EQ(complaint([&] { agreement.check_round(sealed(round)); }),
            "the configuration (settings, seed, models or build) is not rank 0's (sequence 3, round 5)");
  round.action = RoundAction::kEnd;
  EXPECT_EQ(complaint([&] { agreement.check_round(sealed(round)); }), "") << "there is nothing left to agree on";
}

TEST(Agreement, WhatThisRankDecidedByItself) {
  Agreement agreement(kConfiguration);
  agreement.expect_kept(1);
  EXPECT_EQ(complaint([&] { agreement.check_round(sealed(some_round())); }),
            "1 rows of the last round stand by this rank's decision, 2 by rank 0's (sequence 3, round 5)");
  agreement.begin({});
  EXPECT_EQ(complaint([&] { agreement.check_round(sealed(some_round())); }), "") << "a new sequence";
}

TEST(Agreement, EveryTokenOfTheHistoryCounts) {
  std::vector<Token> tokens(30);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<Token>(i * 7 % 11);
  }
  Round round = some_round();
  RunningHash history;
  for (const Token token : tokens) {
    history.add(static_cast<std::uint64_t>(token));
  }
  round.fingerprint.history = history.value();
  round.fingerprint.cached = static_cast<std::int64_t>(tokens.size());
  for (std::size_t flipped = 0; flipped <= tokens.size(); ++flipped) {
    std::vector<Token> mine = tokens;
    if (flipped < tokens.size()) {
      mine[flipped] ^= 1;
    }
    Agreement agreement(kConfiguration);
    agreement.begin(std::span(mine).first(4));
    agreement.commit(std::span(mine).subspan(4));
    EXPECT_EQ(complaint([&] { agreement.check_cache(round, round.fingerprint.cached); }),
              flipped < tokens.size() ? "the token history is not rank 0's (sequence 3, round 5)" : "");
    EXPECT_EQ(complaint([&] { agreement.check_cache(round, round.fingerprint.cached - 1); }),
              "the KV cache holds 29 tokens, rank 0's 30 (sequence 3, round 5)");
  }
}

/// Three ranks decode with a tiny model, and one of them is led astray.
class LedAstray : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;
  static constexpr std::uint32_t kRounds = 6;

  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory;
    write_random_model({.layers = 1, .seed = 3}, directory_->path() / "model");
    write_random_model({.layers = 1, .seed = 3, .noise = 0.01F}, directory_->path() / "other");
  }
  static void TearDownTestSuite() { delete directory_; }
  static std::filesystem::path model() { return directory_->path() / "model"; }

  static DecodeCase settings(const SamplingParams& sampling) {
    DecodeCase settings{.target = model(), .kind = DraftKind::kTarget, .k = 3, .sampling = sampling, .seed = 4};
    settings.rules.max_new_tokens = 40;
    return settings;
  }

  /// What the rank that was led astray complains of; "" when the text was finished.
  std::string run(const DecodeCase& settings, int rank, const Tampering& tampering) {
    std::mutex mutex;
    std::string found;
    try {
      run_ranks(kRanks, [&](Communicator& group) {
        DecodeRank decode(group, settings);
        const std::vector<Token> prompt{5, 6, 7, 8};
        if (group.rank() != rank) {
          decode.run(settings, prompt, 2, false);
          return;
        }
        const std::string why = complaint([&] { decode.follow(settings, tampering); });
        const std::scoped_lock lock(mutex);
        found = why;
      });
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kPeerFailed) << error.what();
      EXPECT_NE(found, "") << "rank " << rank << " went on; another one failed: " << error.what();
    }
    return found;
  }

  static std::string in_round(std::uint32_t number) { return "(sequence 2, round " + std::to_string(number) + ")"; }

  static inline TemporaryDirectory* directory_ = nullptr;
};

TEST_F(LedAstray, NobodyComplainsWithoutReason) {
  for (const SamplingParams& sampling : {SamplingParams{.temperature = 0}, SamplingParams{.temperature = 1},
                                         SamplingParams{.temperature = 1, .top_p = 0.9F}}) {
    EXPECT_EQ(run(settings(sampling), 1, {}), "");
  }
}

TEST_F(LedAstray, AFlippedTokenOfARow) {
  const DecodeCase greedy = settings({.temperature = 0});
  for (int rank = 1; rank < kRanks; ++rank) {
    for (std::uint32_t number = 0; number < kRounds; ++number) {
      for (std::size_t row = 0; row < 4; ++row) {
        EXPECT_EQ(run(greedy, rank,
                      {.round =
                           [&](Round& round) {
                             if (round.action == RoundAction::kScore && round.number == number) {
                               round.rows.at(row).token ^= 1;
                             }
                           },
                       .prompt = {}}),
                  "the round's message is not what rank 0 sent " + in_round(number));
      }
    }
  }
}

TEST_F(LedAstray, AFlippedTokenOfTheHistory) {
  const DecodeCase greedy = settings({.temperature = 0});
  for (int rank = 1; rank < kRanks; ++rank) {
    for (std::size_t position = 0; position < 3; ++position) {
      EXPECT_EQ(run(greedy, rank, {.round = {}, .prompt = [&](std::vector<Token>& ids) { ids.at(position) ^= 1; }}),
                "the token history is not rank 0's " + in_round(0));
    }
  }
}

/// The rank believes what it reads, so only its cache can tell.
TEST_F(LedAstray, ATruncatedCache) {
  const DecodeCase sampled = settings({.temperature = 1, .top_p = 0.9F});
  for (int rank = 1; rank < kRanks; ++rank) {
    for (std::uint32_t number = 1; number < kRounds; ++number) {
      const std::string found = run(sampled, rank,
                                    {.round =
                                         [&](Round& round) {
                                           if (round.action == RoundAction::kScore && round.number == number) {
                                             --round.kept;
                                             round = sealed(round);
                                           }
                                         },
                                     .prompt = {}});
      EXPECT_EQ(found.find("the KV cache holds"), 0U) << found;
      EXPECT_NE(found.find(in_round(number)), std::string::npos) << found;
    }
  }
}

/// What a rank knows of a round that it has decided itself is compared even before its cache.
TEST_F(LedAstray, AnotherDecision) {
  for (const float temperature : {0.0F, 1.0F}) {
    const std::string found = run(settings({.temperature = temperature}), 1,
                                  {.round =
                                       [&](Round& round) {
                                         if (round.action == RoundAction::kScore && round.number == 2) {
                                           --round.kept;
                                           round = sealed(round);
                                         }
                                       },
                                   .prompt = {}});
    EXPECT_NE(found.find("stand by this rank's decision"), std::string::npos) << found;
    EXPECT_NE(found.find(in_round(2)), std::string::npos) << found;
  }
}

/// Jobs as programs run them; `change` is what rank `odd` has otherwise. How many ranks complain.
int disagreeing_ranks(const RunConfig& config, int odd, const std::function<void(RunConfig&)>& change) {
  std::atomic<int> complaints = 0;
  try {
    run_ranks(4, [&](Communicator& group) {
      RunConfig mine = config;
      if (group.rank() == odd) {
        change(mine);
      }
      Progress progress;
      JobGroups groups(group, group);
      Job job(mine, groups, progress, [] { return false; });
      class Ignore final : public OutputSink {
        void begin_output(const std::string&, std::span<const Token>) override {}
        void prefilled(double) override {}
        void append(std::span<const Token>, const std::string&, const LoopRecord&) override {}
        void finish_output(const std::string&, const std::string&) override {}
      } ignore;
      try {
        if (group.rank() == 0) {
          job.generate(Method::kAutoregressive, 0, ignore);
          job.end();
        } else {
          job.follow();
        }
      } catch (const Disagreement& error) {
        EXPECT_NE(std::string(error.what()).find("the configuration"), std::string::npos) << error.what();
        ++complaints;
        // Left standing, so that all others come to compare too.
      }
    });
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kPeerFailed) << error.what();
  }
  return complaints;
}

TEST_F(LedAstray, AnotherConfiguration) {
  const RunConfig config{.target = model(),
                         .prompts = {{.text = "", .ids = std::vector<Token>{1, 2, 3}}},
                         .decode = {.method = Method::kAutoregressive, .k = 0, .max_new_tokens = 8}};
  const std::vector<std::function<void(RunConfig&)>> changes = {
      [](RunConfig& c) { c.decode.seed = 1; },
      [](RunConfig& c) { c.decode.sampling.temperature = 0.5F; },
      [](RunConfig& c) { c.decode.sampling.top_k = 5; },
      [](RunConfig& c) { c.dtype = DType::kF32; },
      [](RunConfig& c) { c.draft_dtype = DType::kInt8; },
      [](RunConfig& c) { c.target = directory_->path() / "other"; },  // another checkpoint of the same shape
  };
  EXPECT_EQ(disagreeing_ranks(config, 1, [](RunConfig&) {}), 0);
  for (const auto& change : changes) {
    EXPECT_EQ(disagreeing_ranks(config, 2, change), 1);
    EXPECT_EQ(disagreeing_ranks(config, 0, change), 3) << "rank 0 is the odd one";
  }
  RunConfig silent = config;
  silent.parallel.agreement = false;
  EXPECT_EQ(disagreeing_ranks(silent, 2, changes.front()), 0) << "parallel.agreement is off";
}

}  // namespace
}  // namespace specdec::tests
