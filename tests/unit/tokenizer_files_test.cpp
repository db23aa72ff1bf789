// Tokenizer files that are broken, or ask for what this program does not do: one clear line each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "backend/error.h"
#include "models/tokenizer.h"
#include "tests/support/bad_input.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class TokenizerFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path model =
        std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/data/tokenizers/llama3-style/tokenizer.json";
    good_ = json::parse(contents(model));
  }

  void write(const std::string& name, const std::string& text) const { temporary_.write(name, text); }

  /// The message for a directory, which must be one line that names `file`.
  std::string refused(const std::string& file) const {
    const std::string message = tests::bad_input([&] { load_tokenizer(directory_); });
    EXPECT_THAT(message, HasSubstr(file));
    EXPECT_THAT(message, HasSubstr("expected"));
    return message;
  }

  /// The message for the good tokenizer.json with one value changed.
  std::string refused_with(const std::string& pointer, const json& value) const {
    json changed = good_;
    changed[json::json_pointer(pointer)] = value;
    write("tokenizer.json", changed.dump());
    return refused("tokenizer.json");
  }

  const tests::TemporaryDirectory temporary_;
  const std::filesystem::path directory_ = temporary_.path();
  json good_;
};

TEST_F(TokenizerFiles, TheGoodOneLoads) {
  write("tokenizer.json", good_.dump());
  EXPECT_EQ(load_tokenizer(directory_)->vocabulary(), 1212);
}

TEST_F(TokenizerFiles, TwoTokensExchangedAreAnotherVocabulary) {
  write("tokenizer.json", good_.dump());
  const auto target = load_tokenizer(directory_);
  json exchanged = good_;
  std::swap(exchanged["model"]["vocab"]["A"], exchanged["model"]["vocab"]["B"]);
  write("tokenizer.json", exchanged.dump());
  const auto draft = load_tokenizer(directory_);
  EXPECT_NE(target->fingerprint(), draft->fingerprint());
  EXPECT_EQ(tests::bad_input([&] { require_same_vocabulary(*target, *draft); }),
            "draft tokenizer: found 1212 ids, the target has 1212; id 32 is 'A' to the target and 'B' to the draft; "
            "expected one vocabulary for both");
}

TEST_F(TokenizerFiles, OfAddedTokensTheLongestIsTaken) {
  json longer = good_;
  longer["added_tokens"].push_back({{"id", 1212}, {"content", "<tool"}, {"normalized", false}});
  longer["added_tokens"].push_back({{"id", 1213}, {"content", "<tool><tool"}, {"normalized", false}});
  write("tokenizer.json", longer.dump());
  const auto tokenizer = load_tokenizer(directory_);
  const Token tool = tokenizer->encode("<tool>").at(0);
  EXPECT_LT(tool, 1212);
  EXPECT_EQ(tokenizer->encode("<tool<tool><tool><tool>"),
            (std::vector<Token>{1212, 1213, tokenizer->encode(">").at(0), tool}));
}

TEST_F(TokenizerFiles, WordsOfNewerUnicodeHideASingleWordToken) {
  json more = good_;
  more["added_tokens"].push_back({{"id", 1212}, {"content", "@w"}, {"single_word", true}, {"normalized", false}});
  write("tokenizer.json", more.dump());
  const auto tokenizer = load_tokenizer(directory_);
  const auto found = [&](const std::string& text) { return std::ranges::count(tokenizer->encode(text), 1212) == 1; };
  EXPECT_TRUE(found("@w") && found(".@w."));
  // Letters of Unicode 15 and 16, a mark of 15.1's time, a digit of 16, and one of each that is old.
  for (const char* word : {"\u00E9", "\uA7CB", "\U00031350", "\u0301", "\u0897", "\U0001E08F", "7", "\U0001CCF0"}) {
    EXPECT_FALSE(found("@w" + std::string(word))) << word;
  }
}

// As `tokenizers` does it, odd as it is: a token that strips takes the space that another token is found in, and the text
// goes on after the later one.
TEST_F(TokenizerFiles, AStrippingTokenBeforeATokenOfSpaces) {
  json more = good_;
  more["added_tokens"].push_back({{"id", 1212}, {"content", "@r"}, {"rstrip", true}, {"normalized", false}});
  more["added_tokens"].push_back({{"id", 1213}, {"content", "  "}, {"normalized", false}});
  write("tokenizer.json", more.dump());
  const auto tokenizer = load_tokenizer(directory_);
  std::vector<Token> expected = {1212, 1213};
  for (const Token token : tokenizer->encode(" \tx")) expected.push_back(token);
  EXPECT_EQ(tokenizer->encode("@r   \tx"), expected);
}

TEST_F(TokenizerFiles, UnsupportedPartsAreNamed) {
  EXPECT_THAT(refused_with("/model/type", "WordPiece"), HasSubstr(R"(model.type: found "WordPiece", expected "BPE")"));
  EXPECT_THAT(refused_with("/model/type", "Unigram"), HasSubstr(R"(found "Unigram")"));
  EXPECT_THAT(refused_with("/model/byte_fallback", true), HasSubstr("model.byte_fallback: found true, expected false"));
  EXPECT_THAT(refused_with("/model/dropout", 0.1), HasSubstr("model.dropout: found 0.1, expected null"));
  EXPECT_THAT(refused_with("/model/end_of_word_suffix", "</w>"), HasSubstr("model.end_of_word_suffix"));
  EXPECT_THAT(refused_with("/model/continuing_subword_prefix", "##"), HasSubstr("model.continuing_subword_prefix"));
  EXPECT_THAT(refused_with("/normalizer", {{"type", "NFC"}}),
              HasSubstr(R"(normalizer.type: found "NFC", expected no normalizer)"));
  EXPECT_THAT(refused_with("/pre_tokenizer", {{"type", "Metaspace"}}),
              HasSubstr(R"(pre_tokenizer.type: found "Metaspace")"));
  EXPECT_THAT(refused_with("/pre_tokenizer", nullptr), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(refused_with("/pre_tokenizer/pretokenizers/0/behavior", "Removed"),
              HasSubstr(R"(found "Removed", expected "Isolated")"));
  EXPECT_THAT(refused_with("/pre_tokenizer/pretokenizers/0/invert", true),
              HasSubstr("invert: found true, expected false"));
  EXPECT_THAT(refused_with("/pre_tokenizer/pretokenizers/0/pattern", {{"String", " "}}), HasSubstr("'Regex'"));
  EXPECT_THAT(refused_with("/post_processor/processors/0/type", "BertProcessing"),
              HasSubstr(R"(found "BertProcessing")"));
  EXPECT_THAT(refused_with("/decoder/type", "WordPiece"),
              HasSubstr(R"(decoder.type: found "WordPiece", expected "ByteLevel")"));
}

TEST_F(TokenizerFiles, PatternsThatWouldReadDifferentlyAreRefused) {
  const std::string where = "/pre_tokenizer/pretokenizers/0/pattern/Regex";
  EXPECT_THAT(refused_with(where, "(unclosed"), HasSubstr("expected a regular expression"));
  for (const std::string pattern : {"[a&&b]", "[a[b]]", "\\p{N}{1,3}+x", "\\h+", "(?m:.)", "\\"}) {
    EXPECT_THAT(refused_with(where, pattern), HasSubstr("expected a regular expression without")) << pattern;
  }
}

TEST_F(TokenizerFiles, WrongValuesAreNamed) {
  EXPECT_THAT(refused_with("/model/vocab", 3), HasSubstr("model.vocab: found 3, expected an object"));
  EXPECT_THAT(refused_with("/model/vocab/!", -1), HasSubstr("model.vocab.!: found -1, expected an id"));
  EXPECT_THAT(refused_with("/model/vocab/!", 1.5), HasSubstr("found 1.5, expected an id"));
  EXPECT_THAT(refused_with("/model/vocab/!", 4000000000U), HasSubstr("found 4000000000, expected an id from 0 to"));
  EXPECT_THAT(refused_with("/model/vocab/!", "0"), HasSubstr("expected an id"));
  EXPECT_THAT(refused_with("/model/vocab/!", 5), HasSubstr("found id 5 for"));
  EXPECT_THAT(refused_with("/model/merges/0", "a"), HasSubstr("model.merges[0]: found \"a\", expected two tokens"));
  EXPECT_THAT(refused_with("/model/merges/0", "a b c"), HasSubstr("expected two tokens"));
  EXPECT_THAT(refused_with("/model/merges/0", json::array({"a"})), HasSubstr("expected two tokens"));
  EXPECT_THAT(refused_with("/model/merges/3", json::array({"q", "\xE6\xBC\xA2"})),
              HasSubstr("model.merges[3]: found 'q"));
  EXPECT_THAT(refused_with("/model/merges/3", 7), HasSubstr("model.merges[3]: found 7, expected a string"));
  EXPECT_THAT(refused_with("/model/unk_token", "nowhere"), HasSubstr("model.unk_token: found 'nowhere'"));
  EXPECT_THAT(refused_with("/added_tokens/0/id", 7), HasSubstr("added_tokens[0]"));
  EXPECT_THAT(refused_with("/added_tokens/0/content", ""), HasSubstr("added_tokens[0]: found an empty content"));
  EXPECT_THAT(refused_with("/added_tokens/0/special", "yes"), HasSubstr("expected true or false"));
  EXPECT_THAT(refused_with("/added_tokens", "x"), HasSubstr("added_tokens: found \"x\", expected an array"));
  EXPECT_THAT(refused_with("/post_processor/processors/1/special_tokens/<|begin_of_text|>/ids/0", 99999),
              HasSubstr("found 99999, expected the id of a token"));
  EXPECT_THAT(refused_with("/model", json::array()), HasSubstr("model: found [], expected an object"));
}

TEST_F(TokenizerFiles, BrokenJson) {
  const std::string whole = good_.dump();
  write("tokenizer.json", whole.substr(0, whole.size() / 2));
  EXPECT_THAT(refused("tokenizer.json"), HasSubstr("found a syntax error at byte"));
  for (const std::string text : {"", "[]", "null", "{}", "{\"model\": 1e999}", "{\"a\": \"\xFF\"}"}) {
    write("tokenizer.json", text);
    refused("tokenizer.json");
  }
  write("tokenizer.json", std::string(2000000, '['));
  EXPECT_THAT(refused("tokenizer.json"), HasSubstr("expected JSON"));
}

TEST_F(TokenizerFiles, IdsWithGapsHaveNoBytes) {
  json gaps = good_;
  gaps["model"]["vocab"]["zqz"] = 5000;
  write("tokenizer.json", gaps.dump());
  const auto tokenizer = load_tokenizer(directory_);
  EXPECT_EQ(tokenizer->vocabulary(), 5001);
  EXPECT_EQ(tokenizer->decode(std::vector<Token>{3000, 5000, 4999}), "zqz");
  // Found through ignore_merges only.
  EXPECT_EQ(tokenizer->encode("zqz"), std::vector<Token>{5000});
}

TEST_F(TokenizerFiles, MergesMayBeStrings) {
  json older = good_;
  for (json& merge : older["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  write("tokenizer.json", older.dump());
  const auto strings = load_tokenizer(directory_);
  write("tokenizer.json", good_.dump());
  const std::string text = "def return_value(self) -> int:\n    return 12345\n";
  EXPECT_EQ(strings->encode(text), load_tokenizer(directory_)->encode(text));
}

TEST_F(TokenizerFiles, PrefixSpace) {
  json prefixed = good_;
  prefixed["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  write("tokenizer.json", prefixed.dump());
  const auto tokenizer = load_tokenizer(directory_);
  EXPECT_EQ(tokenizer->encode("the"), tokenizer->encode(" the"));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a<tool>b<tool> c")), " a<tool> b<tool> c");
  EXPECT_TRUE(tokenizer->encode("").empty());
}

TEST_F(TokenizerFiles, BrokenVocabAndMerges) {
  write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  write("merges.txt", "#version: 0.2\na b\n");
  EXPECT_EQ(load_tokenizer(directory_)->encode("ab<|endoftext|>a"), (std::vector<Token>{2, 3, 0}));
  write("merges.txt", "#version: 0.2\r\na b\r\n\r\n");
  EXPECT_EQ(load_tokenizer(directory_)->encode("aab"), (std::vector<Token>{0, 2}));
  write("merges.txt", "#version: 0.2\na b\na c\n");
  EXPECT_THAT(refused("merges.txt"), HasSubstr("line 3: found 'ac', expected a token of the vocabulary"));
  write("merges.txt", "a\n");
  EXPECT_THAT(refused("merges.txt"), HasSubstr("line 1: found 'a', expected two tokens"));
  write("merges.txt", "a b\n");
  write("vocab.json", R"({"a": 0, "b": 0, "ab": 2})");
  EXPECT_THAT(refused("vocab.json"), HasSubstr("found id 0 for 'b', which 'a' has already"));
  write("vocab.json", "{}");
  refused("vocab.json");
  write("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})");
  EXPECT_THAT(refused("tokenizer_config.json"), HasSubstr("added_tokens_decoder.x"));
  write("tokenizer_config.json", R"({"bos_token": "<b>", "add_bos_token": true, "pad_token": {"content": "<p>"}})");
  const auto tokenizer = load_tokenizer(directory_);
  EXPECT_EQ(tokenizer->encode("a<p>", true), (std::vector<Token>{3, 0, 4}));
}

TEST_F(TokenizerFiles, BrokenSentencePiece) {
  const std::filesystem::path model =
      std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/data/tokenizers/sentencepiece-bpe/tokenizer.model";
  const std::string good = contents(model);
  for (const std::string& text :
       {std::string(), std::string("hello"), good.substr(0, good.size() / 2), std::string(1000, '\0')}) {
    write("tokenizer.model", text);
    EXPECT_THAT(refused("tokenizer.model"), HasSubstr("SentencePiece model"));
  }
  write("tokenizer.model", good);
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"5": {"content": "<mine>"}}})");
  EXPECT_THAT(refused("tokenizer_config.json"), HasSubstr("found id 5 for '<mine>'"));
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"1600": {"content": "<mine>", "special": true}}})");
  const auto tokenizer = load_tokenizer(directory_);
  EXPECT_EQ(tokenizer->vocabulary(), 1601);
  EXPECT_EQ(tokenizer->encode("<mine>"), std::vector<Token>{1600});
  EXPECT_EQ(tokenizer->decode(std::vector<Token>{1600, 1599}), "<mine>");
}

TEST_F(TokenizerFiles, ASpelledOutSentencePieceGivesWay) {
  std::filesystem::copy_file(
      std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/data/tokenizers/sentencepiece-bpe/tokenizer.model",
      directory_ / "tokenizer.model");
  json spelled = good_;
  spelled["model"]["byte_fallback"] = true;
  write("tokenizer.json", spelled.dump());
  EXPECT_EQ(load_tokenizer(directory_)->vocabulary(), 1500);
  write("tokenizer.json", good_.dump());
  EXPECT_EQ(load_tokenizer(directory_)->vocabulary(), 1212);
}

TEST_F(TokenizerFiles, MutatedBytesLoadOrAreRefused) {
  // Small, so that a mutation hits structure more often than a token's spelling.
  json small = good_;
  json vocabulary = json::object();
  for (const auto& [spelling, id] : good_["model"]["vocab"].items()) {
    if (id < 40 || id >= 1198) vocabulary[spelling] = id;
  }
  small["model"]["vocab"] = vocabulary;
  small["model"]["merges"] = json::array();
  const std::string whole = small.dump();
  std::mt19937 random(5);
  int loaded = 0;
  int refusals = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string text = whole;
    const auto changes = 1 + random() % 3;
    for (unsigned change = 0; change < changes; ++change) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 20));
          break;
        default:
          text[at] = "0123456789-.\"{}[]:,\\"[random() % 20];
          break;
      }
    }
    write("tokenizer.json", text);
    try {
      const auto tokenizer = load_tokenizer(directory_);
      const auto ids = tokenizer->encode("It's 1234 <tool> x\n\n  y<|eot_id|>", true);
      tokenizer->decode(ids);
      ++loaded;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
      ++refusals;
    }
  }
  EXPECT_GT(loaded, 50);
  EXPECT_GT(refusals, 50);
}

}  // namespace
}  // namespace specdec
