// A tokenizer.model of whatever bytes either loads or is refused in one line. Under ASan this also shows that nothing outside of it is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "backend/error.h"
#include "models/tokenizer.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kText = "It's 1234 <s> x\n\n  y</s> \xF0\x9F\x98\x80 \xEF\xAC\x81nd \xC3\xA9\xE2\x80\xA6";

std::string model(const std::string& name) {
  std::ifstream in(std::string(SPECDEC_SOURCE_DIR) + "/tests/data/tokenizers/" + name + "/tokenizer.model",
                   std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// What became of many broken files.
struct Outcome {
  int loaded = 0;
  int refused = 0;
};

class SentencePieceTokenizerBytes : public ::testing::Test {
 protected:
  void attempt(const std::string& bytes, Outcome& outcome) const {
    directory_.write("tokenizer.model", bytes);
    try {
      const auto tokenizer = load_tokenizer(directory_.path());
      tokenizer->decode(tokenizer->encode(kText, true));
      ++outcome.loaded;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
      ASSERT_THAT(error.what(), HasSubstr("tokenizer.model: "));
      ASSERT_THAT(error.what(), Not(HasSubstr("\n")));
      ++outcome.refused;
    }
  }

  /// Up to three changes a file: at random, or in its last `tail` bytes, where the settings are; the rest is pieces.
  Outcome attempt_mutations(const std::string& whole, std::size_t tail, int files) const {
    std::mt19937 random(7);
    Outcome outcome;
    for (int i = 0; i < files; ++i) {
      std::string bytes = whole;
      for (auto changes = 1 + random() % 3; changes > 0 && !bytes.empty(); --changes) {
        const std::size_t within = random() % 2 == 0 ? bytes.size() : std::min(tail, bytes.size());
        const std::size_t at = bytes.size() - 1 - random() % within;
        switch (random() % 8) {
          case 0:
            bytes.erase(at, 1 + random() % 20);
            break;
          case 1:
            bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 20));
            break;
          case 2:
            bytes.resize(at);
            break;
          case 3:
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
            break;
          default:
            bytes[at] = static_cast<char>(random());
            break;
        }
      }
      attempt(bytes, outcome);
    }
    return outcome;
  }

  const ::specdec::tests::TemporaryDirectory directory_;
};

std::string varint(std::size_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7U) bytes += static_cast<char>(value % 128 + 128);
  return bytes + static_cast<char>(value);
}

/// A ModelProto.normalizer_spec with these rules; behind a model it replaces the model's own.
std::string normalizer_spec(const std::string& charsmap) {
  const std::string field = "\x12" + varint(charsmap.size()) + charsmap;
  return "\x1A" + varint(field.size()) + field;
}

/// Rules of a trie whose every unit has 256 children, half of them outside of its `units` words.
std::string random_charsmap(std::mt19937& random, std::size_t units) {
  std::string trie(units * sizeof(std::uint32_t), '\0');
  for (std::size_t i = 0; i < units; ++i) {
    const std::size_t children = random() % (units / 128) * 256;
    const auto unit = static_cast<std::uint32_t>(i % 256 | random() % 2 << 8U | children << 10U);
    std::memcpy(trie.data() + i * sizeof unit, &unit, sizeof unit);
  }
  const auto size = static_cast<std::uint32_t>(trie.size());
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + trie + std::string("abc\0", 4);
}

TEST_F(SentencePieceTokenizerBytes, RulesOfNormalisationAreObeyed) {
  directory_.write("tokenizer.model", model("sentencepiece-rules"));
  const auto tokenizer = load_tokenizer(directory_.path());
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("\xEF\xAC\x81nd it\xE2\x80\xA6", false), false), "find it...");
}

TEST_F(SentencePieceTokenizerBytes, MutationsLoadOrAreRefused) {
  for (const char* name : {"sentencepiece-bpe", "sentencepiece-unigram", "sentencepiece-rules"}) {
    SCOPED_TRACE(name);
    constexpr std::size_t kSettings = 1500;
    const Outcome outcome = attempt_mutations(model(name), kSettings, 600);
    EXPECT_GT(outcome.loaded, 25);
    EXPECT_GT(outcome.refused, 50);
  }
}

TEST_F(SentencePieceTokenizerBytes, TruncationsAreRefusedOrLoad) {
  const std::string whole = model("sentencepiece-rules");
  Outcome outcome;
  for (std::size_t size = 0; size < whole.size(); size += 1 + size % 3) attempt(whole.substr(0, size), outcome);
  EXPECT_GT(outcome.refused, 1000);
}

TEST_F(SentencePieceTokenizerBytes, ATrieThatLeadsOutOfItselfIsRefused) {
  const std::string whole = model("sentencepiece-bpe");
  std::mt19937 random(3);
  Outcome outcome;
  for (int i = 0; i < 200; ++i) attempt(whole + normalizer_spec(random_charsmap(random, 256 << i % 3)), outcome);
  EXPECT_EQ(outcome.refused, 200);

  Outcome misshapen;
  const std::string sound = random_charsmap(random, 256);
  for (const std::string& charsmap : {std::string("\0", 1), std::string("\xFF\xFF\xFF\xFF\0", 5), sound.substr(0, 4),
                                      sound.substr(0, sound.size() - 1)}) {
    attempt(whole + normalizer_spec(charsmap), misshapen);
  }
  EXPECT_EQ(misshapen.refused, 4);
}

}  // namespace
}  // namespace specdec
