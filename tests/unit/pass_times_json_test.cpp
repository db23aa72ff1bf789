#include "runtime/pass_times_json.h"

#include <gtest/gtest.h>

namespace specdec {
namespace {

TEST(PassTimesJson, IsReadAsItWasWritten) {
  const PassTimes times{.threads = 2,
                        .target = {1e-3, 2e-3},
                        .target_after_smaller = {3e-3, 4e-3},
                        .whole_target = 5e-3,
                        .draft = {6e-3, 7e-3},
                        .draft_after_target = 8e-3,
                        .in_own_cache = 7e-4,
                        .filling_own_cache = 9e-4,
                        .own_cache_bytes = 1 << 21,
                        .layer = 9e-3,
                        .beside_products = 3e-4,
                        .after_more_keys = {1e-4, 2e-4},
                        .more_keys = 384,
                        .beside = {.loop = 1e-5, .pass = 6e-5, .drafted = 2e-5, .accepted = 3e-5, .scored = {4e-5}}};
  const PassTimes found = pass_times_from_json(pass_times_json({{4, times}}), 4);
  EXPECT_EQ(found.threads, 2);
  EXPECT_DOUBLE_EQ(found.target.at(1), 2e-3);
  EXPECT_DOUBLE_EQ(found.target_after_smaller.at(0), 3e-3);
  EXPECT_DOUBLE_EQ(found.whole_target, 5e-3);
  EXPECT_DOUBLE_EQ(found.draft.at(1), 7e-3);
  EXPECT_DOUBLE_EQ(found.draft_after_target, 8e-3);
  EXPECT_DOUBLE_EQ(found.in_own_cache, 7e-4);
  EXPECT_DOUBLE_EQ(found.filling_own_cache, 9e-4);
  EXPECT_EQ(found.own_cache_bytes, 1 << 21);
  EXPECT_DOUBLE_EQ(found.layer, 9e-3);
  EXPECT_DOUBLE_EQ(found.beside_products, 3e-4);
  EXPECT_DOUBLE_EQ(found.after_more_keys.at(1), 2e-4);
  EXPECT_EQ(found.more_keys, 384);
  EXPECT_DOUBLE_EQ(found.beside.loop, 1e-5);
  EXPECT_DOUBLE_EQ(found.beside.pass, 6e-5);
  EXPECT_DOUBLE_EQ(found.beside.drafted, 2e-5);
  EXPECT_DOUBLE_EQ(found.beside.accepted, 3e-5);
  EXPECT_DOUBLE_EQ(found.beside.scored.at(0), 4e-5);
}

TEST(PassTimesJson, OfAnythingElseIsRefused) {
  EXPECT_THROW(pass_times_from_json({}, 1), nlohmann::json::exception);
  EXPECT_THROW(pass_times_from_json(nlohmann::json(nlohmann::json::value_t::discarded), 1), nlohmann::json::exception);
  nlohmann::json short_of_one = pass_times_json({{1, {.target = {1}}}});
  EXPECT_THROW(pass_times_from_json(short_of_one, 2), nlohmann::json::exception);
  short_of_one["1"]["loop_ms"] = "soon";
  EXPECT_THROW(pass_times_from_json(short_of_one, 1), nlohmann::json::exception);
  short_of_one["1"].erase("loop_ms");
  EXPECT_THROW(pass_times_from_json(short_of_one, 1), nlohmann::json::exception);
}

}  // namespace
}  // namespace specdec
