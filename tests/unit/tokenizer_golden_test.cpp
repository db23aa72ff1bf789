// Agreement with Hugging Face tokenizers, transformers and sentencepiece. Values by
// tests/golden/make_tokenizer_golden.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/regex.h"
#include "models/tokenizer.h"
#include "models/utf8.h"
#include "tests/support/human_eval.h"
#include "tests/support/source_directory.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

using tests::kSource;

const nlohmann::json& golden() {
  static const nlohmann::json values =
      nlohmann::json::parse(std::ifstream(kSource / "tests" / "data" / "tokenizers" / "golden.json"));
  return values;
}

std::string unhex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string shown(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', true); }

std::uint64_t hash(const std::vector<std::int32_t>& values) {
  std::uint64_t value = 0xcbf29ce484222325U;
  for (const std::int32_t item : values) {
    for (unsigned shift = 0; shift < 32; shift += 8) {
      value = (value ^ ((static_cast<std::uint32_t>(item) >> shift) & 0xFFU)) * 0x100000001b3U;
    }
  }
  return value;
}

std::vector<std::string> human_eval_prompts() {
  std::vector<std::string> prompts;
  for (const nlohmann::json& problem : tests::human_eval()) prompts.push_back(problem["prompt"]);
  return prompts;
}

std::string valid(std::string bytes) { return take_valid_utf8(bytes, true); }

std::string streamed(const Tokenizer& tokenizer, const std::vector<Token>& ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const Token id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

using Comparable = std::vector<Token> (*)(std::vector<Token>);
std::vector<Token> in_this_order(std::vector<Token> ids) { return ids; }
std::vector<Token> in_any_order(std::vector<Token> ids) {
  std::ranges::sort(ids);
  return ids;
}

void expect_cases(const Tokenizer& tokenizer, const nlohmann::json& texts, const nlohmann::json& cases,
                  Comparable comparable = in_this_order) {
  ASSERT_EQ(texts.size(), cases.size());
  ASSERT_FALSE(texts.empty());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (cases[i] == 0) continue;
    const std::string text = unhex(texts[i].get<std::string>());
    const auto ids = cases[i][0].get<std::vector<Token>>();
    EXPECT_EQ(comparable(tokenizer.encode(text)), comparable(ids)) << shown(text);
    const std::string decoded = cases[i][1] == 0 ? text : unhex(cases[i][1].get<std::string>());
    EXPECT_EQ(shown(valid(tokenizer.decode(ids))), shown(decoded)) << shown(text);
    EXPECT_EQ(shown(streamed(tokenizer, ids)), shown(decoded)) << shown(text);
  }
}

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, IdsAndDecodedTexts) {
  const auto tokenizer = load_tokenizer(kSource / GetParam());
  // Of two segmentations with the same unigram score, versions of sentencepiece take different ones: the same pieces in
  // another order.
  const bool unigram = GetParam().ends_with("unigram");
  expect_cases(*tokenizer, golden()["texts"], golden()["cases"][GetParam()], unigram ? in_any_order : in_this_order);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden,
                         ::testing::Values("assets/manpy-11m", "tests/data/gpt2-tokenizer",
                                           "tests/data/tokenizers/llama3-style",
                                           "tests/data/tokenizers/sentencepiece-bpe",
                                           "tests/data/tokenizers/sentencepiece-unigram"),
                         [](const auto& instance) {
                           std::string name = instance.param.substr(instance.param.rfind('/') + 1);
                           std::erase_if(name, [](unsigned char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

TEST(TokenizerGolden, HumanEvalPromptsInGpt2) {
  const auto tokenizer = load_tokenizer(kSource / "tests/data/gpt2-tokenizer");
  const auto& expected = golden()["human_eval"];
  const std::vector<std::string> prompts = human_eval_prompts();
  ASSERT_EQ(prompts.size(), 164U);
  ASSERT_EQ(prompts.size(), expected.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<Token> ids = tokenizer->encode(prompts[i]);
    EXPECT_EQ(ids.size(), expected[i][0].get<std::size_t>()) << prompts[i];
    EXPECT_EQ(std::to_string(hash(ids)), expected[i][1].get<std::string>()) << prompts[i];
    EXPECT_EQ(tokenizer->decode(ids), prompts[i]);
  }
}

TEST(TokenizerGolden, AddSpecial) {
  for (const auto& [directory, ids] : golden()["add_special"].items()) {
    EXPECT_EQ(load_tokenizer(kSource / directory)->encode("Hello", true), ids.get<std::vector<Token>>()) << directory;
  }
}

TEST(TokenizerGolden, SpecialTokensInSentencePieceText) {
  const auto tokenizer = load_tokenizer(kSource / "tests/data/tokenizers/sentencepiece-bpe");
  expect_cases(*tokenizer, golden()["special_texts"], golden()["special"]);
}

TEST(TokenizerGolden, LegacySentencePieceSpaces) {
  const tests::TemporaryDirectory directory;
  std::filesystem::copy_file(kSource / "tests/data/tokenizers/sentencepiece-bpe/tokenizer.model",
                             directory.path() / "tokenizer.model");
  directory.write("tokenizer_config.json", R"({"legacy": true})");
  expect_cases(*load_tokenizer(directory.path()), golden()["special_texts"], golden()["special_legacy"]);
}

TEST(TokenizerGolden, CharacterClassesOverAllCodePoints) {
  std::string every;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c < 0xD800 || c >= 0xE000) every += to_utf8(c);
  }
  for (const auto& [pattern, expected] : golden()["classes"].items()) {
    const Regex one(pattern, "test");
    std::vector<std::int32_t> members;
    // Pieces are runs of members and runs of others, so the first character speaks for all.
    Regex(pattern + "+", "test").split(every, [&](std::string_view run) {
      if (!one.matches_at_start(run)) return;
      for (std::size_t at = 0; at < run.size();) {
        const Utf8Unit unit = utf8_unit(run, at);
        members.push_back(static_cast<std::int32_t>(unit.code_point));
        at += unit.length;
      }
    });
    EXPECT_EQ(members.size(), expected[0].get<std::size_t>()) << pattern;
    EXPECT_EQ(std::to_string(hash(members)), expected[1].get<std::string>()) << pattern;
  }
}

}  // namespace
}  // namespace specdec
