#include "runtime/study_guess.h"

#include <gtest/gtest.h>

namespace specdec {
namespace {

class StudyGuess : public ::testing::Test {
 protected:
  /// Of the first point with this K on so many ranks.
  static double guess(const std::string& more, int ranks, std::int64_t k, int cores = 2) {
    const Study study = parse_study(
        "config: " SPECDEC_SOURCE_DIR "/configs/chinchilla-scaled.yaml\nranks: [1, 2, 8]\nk: [0, 4]\n" + more, "g.yaml",
        "g");
    for (const StudyPoint& point : points_of(study)) {
      if (point.kind == PointKind::kDecode && point.ranks == ranks && point.k == k) {
        return guessed_seconds(study, point, cores);
      }
    }
    return 0;
  }
};

TEST_F(StudyGuess, IsWithinAFactorOfWhatJobsTook) {
  // Two cores of a Zen 3, 192 tokens: 5.1 s, 3.6, 3.6 and 2.7.
  const std::string as_then = "set: {decode.max_new_tokens: 192}\ninterconnect: [native]\n";
  const double took[] = {5.1, 3.6, 3.6, 2.7};
  const double guessed[] = {guess(as_then, 1, 0), guess(as_then, 1, 4), guess(as_then, 2, 0), guess(as_then, 2, 4)};
  for (int i = 0; i < 4; ++i) {
    EXPECT_GT(guessed[i], took[i] / 3) << i;
    EXPECT_LT(guessed[i], took[i] * 3) << i;
  }
}

TEST_F(StudyGuess, CountsTokensMessagesAndSharedCores) {
  const std::string native = "interconnect: [native]\n";
  EXPECT_GT(guess("set: {decode.max_new_tokens: 1000}\n" + native, 1, 0), 3 * guess(native, 1, 0));
  EXPECT_GT(guess("interconnect: [tpu-v4-scaled]\n", 2, 0), 1.1 * guess(native, 2, 0));
  EXPECT_GT(guess(native, 8, 0, 2), 1.5 * guess(native, 8, 0, 8));
}

TEST_F(StudyGuess, OfPassesAndAllReduces) {
  const Study study =
      parse_study("config: " SPECDEC_SOURCE_DIR
                  "/configs/chinchilla-like-native.yaml\nranks: [1, 2]\nk: [0, 4]\nhardware: calibrated\n",
                  "g.yaml", "g");
  for (const StudyPoint& point : points_of(study)) {
    EXPECT_GT(guessed_seconds(study, point, 2), 0.5);
    EXPECT_LT(guessed_seconds(study, point, 2), 60);
  }
}

}  // namespace
}  // namespace specdec
