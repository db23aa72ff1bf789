#include "tests/support/greedy_bits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/support/random_model.h"

namespace specdec::tests {
namespace {

std::vector<Token> some_tokens(std::int64_t count, std::int64_t vocabulary, std::uint32_t seed) {
  std::vector<Token> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    tokens.push_back(static_cast<Token>((seed >> 8) % static_cast<std::uint32_t>(vocabulary)));
  }
  return tokens;
}

void decode_references(GreedySubject& subject) {
  SelfCommunicator self;
  const DecodeCase base{
      .target = subject.target, .draft = {}, .dtype = subject.dtype, .make_backend = subject.make_backend};
  DecodeRank rank(self, base);
  for (const GreedySubject::Prompt& prompt : subject.prompts) {
    DecodeCase settings = base;
    settings.rules = prompt.rules;
    subject.reference.push_back(rank.run(settings, prompt.ids, 0, true));
  }
}

/// The first place, not too early, where a token appears that was not generated before: there an EOS ends the text.
Token pick_eos(const std::vector<Token>& tokens) {
  for (std::size_t i = tokens.size() / 2; i < tokens.size(); ++i) {
    if (std::find(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i), tokens[i]) ==
        tokens.begin() + static_cast<std::ptrdiff_t>(i)) {
      return tokens[i];
    }
  }
  return tokens.back();
}

void expect_same(const DecodeResult& expected, const DecodeResult& found, std::int64_t prompt_size, bool is_root,
                 const std::string& what) {
  if (is_root) {
    EXPECT_EQ(found.tokens, expected.tokens) << what;
    EXPECT_EQ(found.finish_reason, expected.finish_reason) << what;
  }
  const auto generated = static_cast<std::int64_t>(expected.tokens.size());
  for (std::int64_t position = prompt_size - 1; position < prompt_size - 1 + generated; ++position) {
    const auto row = found.logits.find(position);
    ASSERT_NE(row, found.logits.end()) << what << ": position " << position << " was never scored";
    const std::vector<float>& whole = expected.logits.at(position);
    ASSERT_EQ(static_cast<std::int64_t>(row->second.size()), found.vocabulary.size()) << what;
    const bool same = row->second.empty() || std::memcmp(row->second.data(), whole.data() + found.vocabulary.begin,
                                                         row->second.size() * sizeof(float)) == 0;
    ASSERT_TRUE(same) << what << ": logits at position " << position << " differ in their bits";
  }
}

}  // namespace

GreedySubject make_random_subject(const std::string& family, const std::filesystem::path& directory, DType dtype,
                                  MakeBackend make_backend) {
  RandomModel model{.family = family, .seed = 3};
  if (family == "gpt2") {
    model.d_model = 40;
    model.heads = 10;
    model.vocabulary = 323;
  }
  GreedySubject subject{.name = family,
                        .target = directory / (family + "-target"),
                        .draft = directory / (family + "-draft"),
                        .dtype = dtype,
                        .make_backend = std::move(make_backend)};
  write_random_model(model, subject.target);
  model.noise = 0.25F;
  write_random_model(model, subject.draft);

  const std::int64_t vocabulary = model.vocabulary;
  subject.prompts.push_back({some_tokens(7, vocabulary, 1), {.max_new_tokens = 40}});
  subject.prompts.push_back({some_tokens(1, vocabulary, 2), {.max_new_tokens = 21}});
  subject.prompts.push_back({some_tokens(70, vocabulary, 3), {.max_new_tokens = 500}});  // to the context's end
  decode_references(subject);
  EXPECT_EQ(subject.reference.back().finish_reason, "context");

  const std::vector<Token> text = subject.reference.front().tokens;
  GreedySubject::Prompt eos = subject.prompts.front();
  eos.rules.eos = {pick_eos(text)};
  GreedySubject::Prompt stop = subject.prompts.front();
  stop.rules.stop = {std::to_string(text[10]) + " " + std::to_string(text[11]) + " "};
  subject.prompts.push_back(eos);
  subject.prompts.push_back(stop);
  subject.reference.clear();
  decode_references(subject);
  EXPECT_EQ(subject.reference[3].finish_reason, "eos");
  EXPECT_EQ(subject.reference[4].finish_reason, "stop");
  return subject;
}

GreedySubject make_shipped_subject(DType dtype) {
  const std::filesystem::path assets = std::filesystem::path(SPECDEC_SOURCE_DIR) / "assets";
  GreedySubject subject{
      .name = "shipped", .target = assets / "manpy-11m", .draft = assets / "manpy-2m", .dtype = dtype};
  subject.prompts.push_back({some_tokens(9, 4096, 5), {.max_new_tokens = 24}});
  decode_references(subject);
  return subject;
}

GreedyCoverage expect_greedy_bits(Communicator& group, const GreedySubject& subject,
                                  const std::vector<std::int64_t>& ks, int threads) {
  GreedyCoverage coverage;
  const DecodeCase base{.target = subject.target,
                        .draft = subject.draft,
                        .dtype = subject.dtype,
                        .threads = threads,
                        .make_backend = subject.make_backend};
  DecodeRank rank(group, base);
  const bool is_root = group.rank() == 0;
  for (std::size_t p = 0; p < subject.prompts.size(); ++p) {
    const GreedySubject::Prompt& prompt = subject.prompts[p];
    for (const std::int64_t k : ks) {
      for (const DraftKind kind : {DraftKind::kModel, DraftKind::kRandom, DraftKind::kTarget}) {
        DecodeCase settings = base;
        settings.rules = prompt.rules;
        settings.kind = kind;
        settings.k = k;
        const DecodeResult found = rank.run(settings, prompt.ids, 0, true);
        const std::string what = subject.name + ", prompt " + std::to_string(p) + ", K " + std::to_string(k) +
                                 ", draft " + std::to_string(static_cast<int>(kind)) + ", rank " +
                                 std::to_string(group.rank()) + " of " + std::to_string(group.size()) + " (" +
                                 std::string(group.transport()) + "), " + std::to_string(threads) + " threads";
        expect_same(subject.reference[p], found, static_cast<std::int64_t>(prompt.ids.size()), is_root, what);
        for (const LoopRecord& loop : found.loops) {
          coverage.accepted += loop.accepted;
          coverage.rejected += loop.reached - loop.accepted;
        }
        ++coverage.runs;
      }
    }
  }
  return coverage;
}

}  // namespace specdec::tests
