#include "models/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "models/utf8.h"
#include "tests/support/bad_input.h"
#include "tests/support/source_directory.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

using tests::bad_input;
using tests::kSource;
const std::vector<std::string> kDirectories = {
    "assets/manpy-2m", "tests/data/gpt2-tokenizer", "tests/data/tokenizers/llama3-style",
    "tests/data/tokenizers/sentencepiece-bpe", "tests/data/tokenizers/sentencepiece-unigram"};

class EveryTokenizer : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { tokenizer_ = load_tokenizer(kSource / GetParam()); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
};

INSTANTIATE_TEST_SUITE_P(Directories, EveryTokenizer, ::testing::ValuesIn(kDirectories), [](const auto& instance) {
  std::string name = instance.param.substr(instance.param.rfind('/') + 1);
  std::erase(name, '-');
  return name;
});

std::string random_text(std::mt19937& random, int characters) {
  std::string text;
  for (int i = 0; i < characters; ++i) {
    auto c = static_cast<char32_t>(random() % 4 == 0 ? random() % 0x110000 : random() % 0x250);
    if (c >= 0xD800 && c < 0xE000) c = ' ';
    text += to_utf8(c);
  }
  return text;
}

TEST_P(EveryTokenizer, DecodeOfEncodeIsTheText) {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    // U+2581 is how SentencePiece spells a space, so that one does not come back.
    std::string text = random_text(random, static_cast<int>(random() % 40));
    if (text.find("\xE2\x96\x81") != std::string::npos) continue;
    EXPECT_EQ(tokenizer().decode(tokenizer().encode(text)), text);
  }
}

TEST_P(EveryTokenizer, StreamIsDecodeAndNeverHalfACharacter) {
  std::mt19937 random(12);
  for (int i = 0; i < 300; ++i) {
    std::vector<Token> ids(random() % 30);
    // One in sixteen lies outside the vocabulary, as a padded head may give; a range at the start is rich in single bytes.
    for (Token& id : ids)
      id = static_cast<Token>(random() % (random() % 2 == 0 ? 300 : tokenizer().vocabulary() * 17 / 16));
    StreamDecoder decoder(tokenizer());
    std::string streamed;
    for (const Token id : ids) {
      streamed += decoder.push(id);
      EXPECT_EQ(first_invalid_utf8(streamed), std::nullopt);
    }
    streamed += decoder.finish();
    std::string whole = tokenizer().decode(ids);
    EXPECT_EQ(streamed, take_valid_utf8(whole, true));
    EXPECT_EQ(decoder.finish(), "");
  }
}

TEST_P(EveryTokenizer, LongRunsOfOneClass) {
  // Quadratic merging or matching would take hours here; a stack or a limit in proportion to the run would fail. With the address sanitizer an eighth of it takes as long.
#if defined(__SANITIZE_ADDRESS__)
  const std::size_t length = 1 << 17;
#else
  const std::size_t length = 1 << 20;
#endif
  for (const std::string unit : {" ", "a", "\n", "7", ".", "\xC3\xA9", " \n", "<"}) {
    std::string text;
    while (text.size() < length) text += unit;
    text += "x";
    EXPECT_EQ(tokenizer().decode(tokenizer().encode(text)), text) << unit;
  }
}

TEST_P(EveryTokenizer, RefusesInvalidUtf8NamingTheByte) {
  const std::map<std::string, int> broken = {
      {"\xFF", 0},     {"ab\xC3", 2},           {"ab\xC3(", 2},
      {"\xC0\x80", 0}, {"a\xED\xA0\x80", 1},    {"\xE2\x82", 0},
      {"ok\x80", 2},   {"\xF4\x90\x80\x80", 0}, {"\xC3\xA9\xE0\x9F\xBF", 2},
  };
  for (const auto& [text, offset] : broken) {
    EXPECT_THAT(bad_input([&] { tokenizer().encode(text); }),
                ::testing::HasSubstr("at offset " + std::to_string(offset) + ","));
  }
}

TEST_P(EveryTokenizer, IdsWithoutTokensHaveNoBytes) {
  const auto end = static_cast<Token>(tokenizer().vocabulary());
  const std::vector<Token> ids = {-1, end, end + 100, std::numeric_limits<Token>::max(),
                                  std::numeric_limits<Token>::min()};
  EXPECT_EQ(tokenizer().decode(ids), "");
  EXPECT_EQ(tokenizer().decode(ids, true), "");
}

TEST(Tokenizer, VocabularyAndFingerprint) {
  const auto gpt2 = load_tokenizer(kSource / "tests/data/gpt2-tokenizer");
  const auto large = load_tokenizer(kSource / "assets/manpy-11m");
  const auto small = load_tokenizer(kSource / "assets/manpy-0.5m");
  EXPECT_EQ(gpt2->vocabulary(), 50257);
  EXPECT_EQ(large->vocabulary(), 4096);
  EXPECT_EQ(large->fingerprint(), small->fingerprint());
  EXPECT_NE(large->fingerprint(), gpt2->fingerprint());
  EXPECT_NO_THROW(require_same_vocabulary(*large, *small));
  EXPECT_THAT(bad_input([&] { require_same_vocabulary(*large, *gpt2); }),
              ::testing::AllOf(::testing::HasSubstr("50257 ids, the target has 4096"), ::testing::HasSubstr("; id ")));
}

TEST(Tokenizer, ShippedVocabAndMergesSayTheSameAsTokenizerJson) {
  const tests::TemporaryDirectory directory;
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json"}) {
    std::filesystem::copy_file(kSource / "assets/manpy-2m" / name, directory.path() / name);
  }
  const auto both = load_tokenizer(kSource / "assets/manpy-2m");
  const auto pair = load_tokenizer(directory.path());
  EXPECT_NO_THROW(require_same_vocabulary(*both, *pair));
  const std::string text = "def f(x):\r\n    return  x<|endoftext|> it's\n";
  EXPECT_EQ(both->encode(text), pair->encode(text));
}

TEST(Tokenizer, SkipsSpecialTokensWhenAsked) {
  const auto tokenizer = load_tokenizer(kSource / "assets/manpy-2m");
  const std::vector<Token> ids = tokenizer->encode("a<|endoftext|>b");
  EXPECT_EQ(tokenizer->decode(ids), "a<|endoftext|>b");
  EXPECT_EQ(tokenizer->decode(ids, true), "ab");
  const auto sentencepiece = load_tokenizer(kSource / "tests/data/tokenizers/sentencepiece-bpe");
  const std::vector<Token> pieces = sentencepiece->encode("Hello", true);
  EXPECT_EQ(sentencepiece->decode(pieces, true), "Hello");
  EXPECT_EQ(sentencepiece->decode(pieces), "<s> Hello");
}

TEST(Tokenizer, HasTokenizer) {
  for (const std::string& directory : kDirectories) EXPECT_TRUE(has_tokenizer(kSource / directory));
  EXPECT_FALSE(has_tokenizer(kSource / "tests"));
  EXPECT_FALSE(has_tokenizer(kSource / "no such directory"));
  EXPECT_THAT(bad_input([] { load_tokenizer(kSource / "tests"); }),
              ::testing::HasSubstr("found no tokenizer, expected tokenizer.json"));
}

TEST(Utf8, ReplacesMaximalSubparts) {
  // What Python's bytes.decode(errors="replace") gives, from the Unicode standard's tables 3-8 to 3-11.
  const std::string bad = "\xEF\xBF\xBD";
  const std::map<std::string, std::string> cases = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", bad + bad + bad + bad + bad + bad + bad + bad + "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", bad + bad + bad + bad + bad + bad + bad + bad + "A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", bad + bad + bad + bad + bad + "A" + bad + bad + "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", bad + bad + bad + bad + "A"},
      {"a\xF0\x9F\x98", "a" + bad},
  };
  for (const auto& [bytes, text] : cases) {
    std::string held = bytes;
    EXPECT_EQ(take_valid_utf8(held, true), text);
    EXPECT_EQ(held, "");
  }
  std::string held = "a\xF0\x9F\x98";
  EXPECT_EQ(take_valid_utf8(held, false), "a");
  held += '\x80';
  EXPECT_EQ(take_valid_utf8(held, false), "\xF0\x9F\x98\x80");
}

}  // namespace
}  // namespace specdec
