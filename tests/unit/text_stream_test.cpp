#include "runtime/text_stream.h"

#include <gtest/gtest.h>

namespace specdec {
namespace {

/// One byte a token, so that tests can spell.
class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<Token> encode(std::string_view text, bool) const override { return {text.begin(), text.end()}; }
  std::string decode(std::span<const Token> tokens, bool) const override {
    std::string text;
    for (const Token token : tokens) {
      text += static_cast<char>(token);
    }
    return text;
  }
  std::int64_t vocabulary() const override { return 256; }
  std::uint64_t fingerprint() const override { return 1; }
};

struct Streamed {
  std::string text;
  bool stopped = false;
  std::size_t consumed = 0;
};

Streamed stream(std::string_view input, const std::vector<std::string>& stop) {
  const ByteTokenizer tokenizer;
  TextStream text(&tokenizer, stop);
  Streamed result;
  for (const char c : input) {
    result.text += text.push(static_cast<unsigned char>(c));
    ++result.consumed;
    if (text.stopped()) {
      result.stopped = true;
      return result;
    }
  }
  result.text += text.finish();
  return result;
}

TEST(TextStream, PassesTextThrough) {
  EXPECT_EQ(stream("hello", {}).text, "hello");
  EXPECT_FALSE(stream("hello", {}).stopped);
}

TEST(TextStream, EndsBeforeAStopString) {
  const Streamed s = stream("def f():\n\ndef g", {"\n\ndef"});
  EXPECT_EQ(s.text, "def f():");
  EXPECT_TRUE(s.stopped);
  EXPECT_EQ(s.consumed, std::string_view("def f():\n\ndef").size());
}

TEST(TextStream, HoldsBackWhatMayBeginAStopString) {
  const ByteTokenizer tokenizer;
  const std::vector<std::string> stop{"END"};
  TextStream text(&tokenizer, stop);
  EXPECT_EQ(text.push('a'), "a");
  EXPECT_EQ(text.push('E'), "");
  EXPECT_EQ(text.push('N'), "");
  EXPECT_EQ(text.push('x'), "ENx");
  EXPECT_EQ(text.push('E'), "");
  EXPECT_EQ(text.finish(), "E");
}

TEST(TextStream, OverlappingBeginningsAreNotLost) {
  EXPECT_EQ(stream("aaab tail", {"aab"}).text, "a");
  EXPECT_EQ(stream("ababac", {"abac"}).text, "ab");
}

TEST(TextStream, TheEarliestOfSeveralStopStringsCounts) {
  EXPECT_EQ(stream("one two three", {"three", "two"}).text, "one ");
}

TEST(TextStream, ReleasesTheHeldTextWhenItOnlyLookedLikeAStop) { EXPECT_EQ(stream("STO", {"STOP"}).text, "STO"); }

TEST(TextStream, HoldsBackHalfCharacters) {
  const ByteTokenizer tokenizer;
  const std::vector<std::string> stop;
  TextStream text(&tokenizer, stop);
  EXPECT_EQ(text.push(0xC3), "");
  EXPECT_EQ(text.push(0xA9), "\xC3\xA9");
}

TEST(TextStream, WithoutATokenizerTheTextIsIds) {
  const std::vector<std::string> stop;
  TextStream text(nullptr, stop);
  EXPECT_EQ(text.push(17), "17 ");
  EXPECT_EQ(text.push(4), "4 ");
}

}  // namespace
}  // namespace specdec
