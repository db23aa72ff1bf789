// Whatever lies in the folder, what a matrix multiplies with is what packing it gives.
#include "backend/cpu/packed_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/packed_linear.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string content_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void overwrite(const fs::path& file, std::string_view content) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
}

/// A file of fp32 weights, and a matrix of two views of it whose outputs fill no whole number of panels.
class PackedCacheTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kCols = 13;
  static constexpr std::int64_t kRows = 40;

  PackedCacheTest() : weights_(kRows * kCols) {
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] = 0.25F * static_cast<float>(i % 77) - 3.0F;
    source_ = {
        .data = reinterpret_cast<const std::byte*>(weights_.data()), .path = "/m/model.safetensors", .state = "1"};
  }

  WeightView view(std::int64_t first, std::int64_t rows) const {
    return {
        .data = source_.data + first * kCols * 4, .rows = rows, .cols = kCols, .row_stride = kCols, .source = &source_};
  }
  LinearSpec spec(DType dtype = DType::kBF16) const {
    return {.stacked = {view(0, 18), view(20, 5)}, .slices = {{0, 5}, {5, 5}, {5, kCols}}, .dtype = dtype};
  }
  PackedKey key(const LinearSpec& of, int layout = kPanelLayoutVersion) const {
    const CpuPackedLinear packed(of, Isa::kScalar, Contents::kNone);
    const auto piece = static_cast<std::size_t>(packed.panel_bytes());
    return PackedKey::of(of, layout, static_cast<std::size_t>(packed.panel_count()) * piece, piece).value();
  }
  PackedKey key() const { return key(spec()); }
  fs::path file(const PackedKey& of) const { return folder() / of.file_name; }
  fs::path file() const { return file(key()); }
  fs::path part() const { return file().string() + ".part"; }
  fs::path folder() const { return directory_.path() / "a" / "b"; }

  /// Packs through `cache` and compares with packing alone.
  static void expect_right(PackedCache& cache, const LinearSpec& of, int threads = 1) {
    ThreadPool pool(threads);
    const CpuPackedLinear got(of, Isa::kScalar, pool, &cache);
    const CpuPackedLinear want(of, Isa::kScalar);
    ASSERT_EQ(got.bytes(), want.bytes());
    EXPECT_EQ(std::memcmp(got.panels(), want.panels(), want.bytes()), 0);
  }
  bool loads(const PackedKey& of) {
    PackedCache cache(folder());
    ThreadPool pool(1);
    return cache.load(of, pool).has_value();
  }
  /// With the matrix in the folder.
  void fill() {
    PackedCache cache(folder());
    expect_right(cache, spec());
    ASSERT_EQ(cache.problem(), "");
    ASSERT_TRUE(loads(key()));
  }
  /// After something was done to the file: it counts as none, and is made anew.
  void expect_rebuilt(const std::string& why) {
    EXPECT_FALSE(loads(key())) << why;
    PackedCache cache(folder());
    expect_right(cache, spec());
    EXPECT_EQ(cache.problem(), "") << why;
    EXPECT_TRUE(loads(key())) << why;
  }

  tests::TemporaryDirectory directory_;
  std::vector<float> weights_;
  SourceFile source_;
};

TEST_F(PackedCacheTest, TheSecondTimeNothingIsPacked) {
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kInt8}) {
    for (const int threads : {1, 2, 3}) {
      fs::remove_all(folder());
      PackedCache first(folder());
      expect_right(first, spec(dtype), threads);
      EXPECT_EQ(first.loaded(), 0);
      EXPECT_EQ(first.missed(), 1);
      EXPECT_EQ(first.problem(), "");
      for (const int other_threads : {1, 2, 3}) {
        PackedCache second(folder());
        expect_right(second, spec(dtype), other_threads);
        EXPECT_EQ(second.loaded(), 1);
        EXPECT_EQ(second.missed(), 0);
      }
    }
  }
}

TEST_F(PackedCacheTest, WhatIsLoadedIsTheFilesAndNotPackedAgain) {
  fill();
  weights_[3] += 1;  // with the state of before, which no real file keeps
  PackedCache cache(folder());
  ThreadPool pool(1);
  const CpuPackedLinear got(spec(), Isa::kScalar, pool, &cache);
  const CpuPackedLinear fresh(spec(), Isa::kScalar);
  EXPECT_NE(std::memcmp(got.panels(), fresh.panels(), fresh.bytes()), 0);
}

TEST_F(PackedCacheTest, EveryFlippedBitIsFound) {
  fill();
  const std::string good = content_of(file());
  ASSERT_EQ(good.size(), key().header.size() + key().bytes + 16);
  ASSERT_EQ(good.substr(0, key().header.size()), key().header);
  PackedCache cache(folder());
  ThreadPool pool(1);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::fstream bad(file(), std::ios::binary | std::ios::in | std::ios::out);
    const auto put = [&](char byte) { bad.seekp(static_cast<std::streamoff>(at)).put(byte).flush(); };
    put(static_cast<char>(good[at] ^ (1 << at % 8)));
    ASSERT_FALSE(cache.load(key(), pool).has_value()) << "byte " << at;
    put(good[at]);
  }
  ASSERT_TRUE(loads(key()));
}

TEST_F(PackedCacheTest, OtherLengthsAreFound) {
  fill();
  const std::string good = content_of(file());
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{4096}, good.size() / 2,
                                  good.size() - 17, good.size() - 16, good.size() - 1}) {
    overwrite(file(), good.substr(0, bytes));
    expect_rebuilt(std::to_string(bytes) + " bytes");
  }
  overwrite(file(), good + '\0');
  expect_rebuilt("a byte too many");
}

TEST_F(PackedCacheTest, PanelsOfAnotherMatrixUnderThisHeaderAreFound) {
  fill();
  const std::string mine = content_of(file());
  LinearSpec other = spec();
  other.stacked = {view(2, 18), view(22, 5)};
  PackedCache cache(folder());
  expect_right(cache, other);
  overwrite(file(), key().header + content_of(file(key(other))).substr(key(other).header.size()));
  ASSERT_EQ(content_of(file()).size(), mine.size());
  expect_rebuilt("the panels of another");
}

TEST_F(PackedCacheTest, OfAnotherStateOrLayoutTheFileIsReplaced) {
  fill();
  const PackedKey before = key();
  const PackedKey layout = key(spec(), kPanelLayoutVersion + 1);
  EXPECT_EQ(layout.file_name, before.file_name);
  EXPECT_FALSE(loads(layout));
  source_.state = "2";
  EXPECT_EQ(key().file_name, before.file_name);
  weights_[0] = 99;
  expect_rebuilt("another state");
  EXPECT_FALSE(loads(before));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder()), {}), 1) << "old files pile up";
}

TEST_F(PackedCacheTest, OtherMatricesHaveFilesOfTheirOwn) {
  std::vector<LinearSpec> others(8, spec());
  others[1].stacked = {view(1, 18), view(20, 5)};
  others[2].stacked = {view(0, 18), view(20, 6)};
  others[3].stacked = {view(20, 5), view(0, 18)};
  others[4].slices = {{0, 6}, {6, 6}, {6, kCols}};
  others[5].dtype = DType::kF32;
  others[6].stacked[0].col_stride = 0;
  others[7].stacked[1].dtype = DType::kBF16;
  SourceFile elsewhere = source_;
  elsewhere.path += "2";
  others.push_back(spec());
  others.back().stacked[1].source = &elsewhere;
  PackedCache cache(folder());
  for (const LinearSpec& other : others) expect_right(cache, other);
  EXPECT_EQ(cache.loaded(), 0);
  for (const LinearSpec& other : others) expect_right(cache, other);
  EXPECT_EQ(cache.loaded(), static_cast<std::int64_t>(others.size()));
  EXPECT_EQ(cache.missed(), static_cast<std::int64_t>(others.size()));
}

TEST_F(PackedCacheTest, WeightsOfNoFileAndNoWeightsAreNotKept) {
  LinearSpec some = spec();
  some.stacked[1].source = nullptr;
  LinearSpec none = spec();
  none.stacked = {view(0, 0)};
  PackedCache cache(folder());
  expect_right(cache, some);
  expect_right(cache, none);
  EXPECT_TRUE(fs::is_empty(folder()));
  EXPECT_EQ(cache.loaded() + cache.missed(), 0);
}

TEST_F(PackedCacheTest, FilesThatOthersMayWriteAreNotTrusted) {
  for (const mode_t mode : {0620, 0602, 0666}) {
    fill();
    ASSERT_EQ(::chmod(file().c_str(), mode), 0);
    expect_rebuilt("writable for others");
  }
  fs::create_hard_link(file(), directory_.path() / "second name");
  expect_rebuilt("with two names");
  fs::rename(file(), directory_.path() / "elsewhere");
  fs::create_symlink(directory_.path() / "elsewhere", file());
  expect_rebuilt("a link");
  fs::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  expect_rebuilt("a pipe");
  struct stat status = {};
  ASSERT_EQ(::stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST_F(PackedCacheTest, FilesOfAnotherUserAreNotTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  fill();
  ASSERT_EQ(::chown(file().c_str(), 1, static_cast<gid_t>(-1)), 0);
  expect_rebuilt("another's");
  overwrite(part(), "another's");
  ASSERT_EQ(::chown(part().c_str(), 1, static_cast<gid_t>(-1)), 0);
  fs::remove(file());
  PackedCache cache(folder());
  expect_right(cache, spec());
  EXPECT_THAT(cache.problem(), HasSubstr("not permitted"));
  EXPECT_EQ(content_of(part()), "another's");
}

TEST_F(PackedCacheTest, WhatAKilledProcessLeftIsWrittenOver) {
  fs::create_directories(folder());
  overwrite(part(), std::string(100'000, 'x'));
  ASSERT_EQ(::chmod(part().c_str(), 0600), 0);
  fill();
  EXPECT_FALSE(fs::exists(part()));
}

TEST_F(PackedCacheTest, WhileAnotherProcessWritesItThisOneDoesNot) {
  fs::create_directories(folder());
  const int other = ::open(part().c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  PackedCache cache(folder());
  expect_right(cache, spec());
  EXPECT_EQ(cache.problem(), "");
  EXPECT_EQ(fs::file_size(part()), 0U);
  EXPECT_FALSE(fs::exists(file()));
  ::close(other);
}

/// Stores and loads of several at once, of which each load finds nothing or all of it.
TEST_F(PackedCacheTest, ThreadsAtOnce) {
  const CpuPackedLinear want(spec(), Isa::kScalar);
  std::atomic<int> wrong = 0;
  std::atomic<int> loaded = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 60; ++round) {
        PackedCache cache(folder());
        ThreadPool pool(1);
        const bool was_there = fs::exists(file());
        if (thread % 2 == 0) {
          AlignedArray panels(want.bytes());
          std::memcpy(panels.data(), want.panels(), want.bytes());
          cache.store(key(), panels);
          if (!cache.problem().empty()) ++wrong;
        } else if (const auto got = cache.load(key(), pool)) {
          ++loaded;
          if (std::memcmp(got->data(), want.panels(), want.bytes()) != 0) ++wrong;
        } else if (was_there) {
          ++wrong;  // a file is there whole or not at all
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(loads(key()));
}

TEST_F(PackedCacheTest, ProcessesAtOnceOfWhichSomeAreKilled) {
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      for (int round = 0; round < 200; ++round) {
        PackedCache cache(folder());
        expect_right(cache, spec());
        if (HasFailure() || !cache.problem().empty()) ::_exit(1);
        if (child == 3 && round % 3 == 0) {
          std::error_code ignored;
          fs::remove(file(), ignored);
        }
      }
      ::_exit(0);
    }
    children.push_back(pid);
  }
  ::usleep(2000);
  ::kill(children[0], SIGKILL);
  for (std::size_t child = 0; child < children.size(); ++child) {
    int status = 0;
    ASSERT_EQ(::waitpid(children[child], &status, 0), children[child]);
    EXPECT_TRUE(status == 0 || child == 0) << child << ": " << status;
  }
  fill();
}

TEST_F(PackedCacheTest, FilesMayBeNoLargerThanALimit) {
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small = {.rlim_cur = 5000, .rlim_max = before.rlim_max};
  PackedCache cache(folder());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_right(cache, spec());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(cache.problem(), part().string() + ": File too large");
  EXPECT_TRUE(fs::is_empty(folder()));
  expect_right(cache, spec());
  EXPECT_TRUE(fs::is_empty(folder())) << "it goes on trying";
}

/// In a process of its own, which may have a disk of its own.
TEST_F(PackedCacheTest, FullDisk) {
  fs::create_directories(folder());
  constexpr int kCannotMount = 77;
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder().c_str(), "tmpfs", 0, "size=4k") != 0) {
      ::_exit(kCannotMount);
    }
    PackedCache cache(folder());
    expect_right(cache, spec(DType::kF32));
    const bool told = cache.problem().ends_with(": No space left on device");
    ::_exit(HasFailure() || !told || !fs::is_empty(folder()) ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannotMount) GTEST_SKIP() << "only root can mount a small disk";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(PackedCacheTest, AFolderThatIsGone) {
  PackedCache cache(folder());
  fs::remove_all(folder());
  expect_right(cache, spec());
  EXPECT_EQ(cache.problem(), part().string() + ": No such file or directory");
}

TEST_F(PackedCacheTest, AFolderThatCannotBeMade) {
  const fs::path plain = directory_.write("file", "");
  for (const fs::path& place : {plain, plain / "below"}) {
    PackedCache cache(place);
    EXPECT_THAT(cache.problem(), HasSubstr(place.string() + ": found "));
    EXPECT_THAT(cache.problem(), HasSubstr("expected a folder"));
    expect_right(cache, spec());
    EXPECT_EQ(cache.missed(), 1);
  }
  PackedCache nameless("");
  EXPECT_NE(nameless.problem(), "");
  expect_right(nameless, spec());
  EXPECT_FALSE(fs::exists(key().file_name));
}

}  // namespace
}  // namespace specdec
