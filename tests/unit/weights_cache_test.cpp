#include "runtime/weights_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "backend/error.h"
#include "parallel/self_communicator.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;

/// A variable of the environment, put back with the object; null: unset.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) {
    if (value != nullptr) {
      ::setenv(name_, value, 1);
    } else {
      ::unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> before_;
};

RunConfig config(const std::string& weights_cache) {
  RunConfig config;
  config.weights_cache = weights_cache;
  return config;
}

WeightsCacheRecord record_of(const WeightsCache& cache) {
  SelfCommunicator self;
  return cache.gather(self);
}

TEST(WeightsCache, NoneWhereNothingIsKept) {
  const tests::TemporaryDirectory directory;
  const std::string folder = directory.path() / "cache";
  RunConfig random = config(folder);
  random.weights.random = true;
  RunConfig reference = config(folder);
  reference.backend = "reference";
  for (const RunConfig& run : {config("off"), random, reference}) {
    const WeightsCache cache(run, [] {});
    EXPECT_EQ(cache.packed(), nullptr);
    EXPECT_EQ(record_of(cache).problem, "");
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_NE(WeightsCache(config(folder), [] {}).packed(), nullptr);
  EXPECT_TRUE(std::filesystem::exists(folder));
}

TEST(WeightsCache, AutoIsTheUsersFolder) {
  const tests::TemporaryDirectory directory;
  const std::string xdg = directory.path() / "xdg";
  const std::string home = directory.path() / "home";
  const Variable has_home("HOME", home.c_str());
  {
    const Variable has_xdg("XDG_CACHE_HOME", xdg.c_str());
    EXPECT_NE(WeightsCache(config("auto"), [] {}).packed(), nullptr);
    EXPECT_TRUE(std::filesystem::is_directory(xdg + "/specdec_dist"));
    EXPECT_FALSE(std::filesystem::exists(home));
  }
  for (const char* none : {static_cast<const char*>(nullptr), "", "relative"}) {
    std::filesystem::remove_all(home);
    const Variable has_no_xdg("XDG_CACHE_HOME", none);
    EXPECT_NE(WeightsCache(config("auto"), [] {}).packed(), nullptr);
    EXPECT_TRUE(std::filesystem::is_directory(home + "/.cache/specdec_dist"));
  }
}

TEST(WeightsCache, AutoThatCannotBeMadeIsAProblem) {
  const tests::TemporaryDirectory directory;
  const std::string file = directory.write("file", "");
  {
    const Variable xdg("XDG_CACHE_HOME", file.c_str());
    const WeightsCache cache(config("auto"), [] {});
    EXPECT_THAT(record_of(cache).problem, HasSubstr("weights_cache: " + file + "/specdec_dist: found "));
  }
  const Variable no_xdg("XDG_CACHE_HOME", nullptr);
  const Variable no_home("HOME", nullptr);
  const WeightsCache cache(config("auto"), [] {});
  EXPECT_THAT(record_of(cache).problem, HasSubstr("found neither XDG_CACHE_HOME nor HOME"));
}

TEST(WeightsCache, ANamedFolderThatCannotBeMadeIsBadInput) {
  const tests::TemporaryDirectory directory;
  const std::string file = directory.write("file", "");
  EXPECT_THROW(WeightsCache(config(file), [] {}), Error);
}

}  // namespace
}  // namespace specdec
