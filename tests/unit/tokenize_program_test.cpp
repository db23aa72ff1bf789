// specdec_tokenize as a user runs it: a pipe in, a pipe out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/local_program.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kModelFlag = std::string("--model '") + SPECDEC_SOURCE_DIR + "/assets/manpy-2m'";

class TokenizeProgram : public ::testing::Test {
 protected:
  using Result = tests::LocalProgram::Result;
  Result run(const std::string& flags, const std::string& input = "") const { return program_.run(flags, input); }

  const tests::LocalProgram program_{"specdec_tokenize"};
};

TEST_F(TokenizeProgram, ThereAndBackIsTheSameBytes) {
  std::string text = "def f(x):\r\n\treturn  x  \n";
  text += std::string("\0\x01\xF0\x9F\x98\x80<|endoftext|>", 19);
  const Result ids = run(kModelFlag, text);
  ASSERT_EQ(ids.code, 0) << ids.err;
  EXPECT_EQ(ids.err, "");
  EXPECT_EQ(ids.out.find('\n'), ids.out.size() - 1);
  EXPECT_THAT(ids.out, EndsWith(" 4095\n"));
  const Result back = run(kModelFlag + " --decode", ids.out);
  EXPECT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(back.out, text);
}

TEST_F(TokenizeProgram, EmptyTextIsAnEmptyLine) {
  EXPECT_EQ(run(kModelFlag, "").out, "\n");
  const Result back = run(kModelFlag + " --decode", "\n");
  EXPECT_EQ(back.code, 0);
  EXPECT_EQ(back.out, "");
}

TEST_F(TokenizeProgram, AddSpecialPutsBosBefore) {
  const std::string model = std::string("--model '") + SPECDEC_SOURCE_DIR + "/tests/data/tokenizers/llama3-style' ";
  const std::string plain = run(model, "Hello").out;
  EXPECT_THAT(run(model + "--add-special", "Hello").out,
              AllOf(EndsWith(" " + plain), ::testing::Not(::testing::Eq(plain))));
}

TEST_F(TokenizeProgram, FindsTheShippedModelsByNameFromAnyFolder) {
  EXPECT_EQ(run("--model manpy-2m", "def f(x):").out, run(kModelFlag, "def f(x):").out);
  EXPECT_EQ(run("--model assets/manpy-2m", "def f(x):").out, run(kModelFlag, "def f(x):").out);
}

TEST_F(TokenizeProgram, ErrorsAreOneLineAndExitCodeTwo) {
  const auto expect_error = [&](const std::string& flags, const std::string& input, const std::string& what) {
    program_.expect_error(flags, what, input);
  };
  expect_error(kModelFlag, "ab\xFF", "found byte 0xff at offset 2, expected valid UTF-8");
  expect_error(kModelFlag + " --decode", "12 x7 3", "id 2: found 'x7', expected a number from 0 to 4095");
  expect_error(kModelFlag + " --decode", "4096", "found '4096'");
  expect_error(kModelFlag + " --decode", "-1", "found '-1'");
  expect_error(kModelFlag + " --decode", "99999999999999999999", "found '99999999999999999999'");
  expect_error("--model /nowhere", "a", "found no directory '/nowhere'");
  expect_error(std::string("--model '") + SPECDEC_SOURCE_DIR + "/docs'", "a", "docs: found no tokenizer");
  expect_error("", "a", "--model");
  expect_error("--model ''", "a", "--model: found nothing");
  expect_error(kModelFlag + " --nonsense", "a", "--nonsense");
  expect_error(kModelFlag + " --decode --add-special", "1", "--add-special");
}

TEST_F(TokenizeProgram, HelpAndVersion) {
  const Result help = run("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--model"), HasSubstr("--decode"), HasSubstr("--add-special")));
  const Result version = run("--version");
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out, StartsWith("specdec_tokenize "));
}

}  // namespace
}  // namespace specdec
