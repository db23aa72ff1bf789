// Arrays of all sizes, and the huge pages that those of some size share.
#include "backend/cpu/aligned_array.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/huge_pages.h"
#include "tests/support/resident.h"

namespace specdec {
namespace {

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;

std::uintptr_t place_of(const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); }

/// Of the mapping that `at` lies in, as /proc/self/smaps has them; empty where there is none.
std::string flags_of_mapping(const std::byte* at) {
  std::ifstream smaps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      here = begin <= place_of(at) && place_of(at) < end;
    } else if (here && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return {};
}

TEST(AlignedArray, IsAlignedAndZeroWhateverLayThereBefore) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, 63 * kKiB + 1, 64 * kKiB, 64 * kKiB + 1, 3 * kMiB + 7,
                                  8 * kMiB - 64, 8 * kMiB, 9 * kMiB + 1, 40 * kMiB}) {
    for (const auto fill : {AlignedArray::Fill::kZero, AlignedArray::Fill::kZeroWhenTouched, AlignedArray::Fill::kZero,
                            AlignedArray::Fill::kZeroWhenTouched}) {
      AlignedArray array(bytes, fill);
      ASSERT_EQ(array.bytes(), bytes);
      EXPECT_EQ(place_of(array.data()) % AlignedArray::kAlignment, 0U) << bytes;
      EXPECT_TRUE(std::all_of(array.data(), array.data() + bytes, [](std::byte b) { return b == std::byte{0}; }))
          << bytes;
      std::fill_n(array.data(), bytes, std::byte{0xff});
    }
  }
}

TEST(AlignedArray, IsInMemoryUnlessOnlyWhenTouched) {
  constexpr std::size_t kBytes = 40 * kMiB;
  const AlignedArray written(kBytes);
  EXPECT_GE(tests::resident(written.data(), kBytes), kBytes) << "what is read of it is read from memory";
  AlignedArray untouched(kBytes, AlignedArray::Fill::kZeroWhenTouched);
  EXPECT_EQ(tests::resident(untouched.data(), kBytes), 0U);
  untouched.data()[kBytes / 2] = std::byte{1};
  EXPECT_LE(tests::resident(untouched.data(), kBytes), huge_pages::kPageBytes);
}

TEST(AlignedArray, KeepsItsBytesWhileOthersComeAndGo) {
  std::mt19937 random(3);
  std::vector<std::pair<AlignedArray, std::byte>> arrays;
  const auto whole = [](const std::pair<AlignedArray, std::byte>& of) {
    const std::byte* const data = of.first.data();
    return std::all_of(data, data + of.first.bytes(), [&](std::byte b) { return b == of.second; });
  };
  for (int step = 0; step < 300; ++step) {
    if (arrays.size() < 20) {
      const std::size_t bytes = std::size_t{1} << std::uniform_int_distribution(10, 23)(random);
      auto& [array, content] =
          arrays.emplace_back(AlignedArray(bytes, AlignedArray::Fill::kNone), static_cast<std::byte>(step));
      std::fill_n(array.data(), bytes, content);
    }
    if (step % 2 == 1) {
      const auto gone =
          arrays.begin() + std::uniform_int_distribution<std::ptrdiff_t>(0, std::ssize(arrays) - 1)(random);
      ASSERT_TRUE(whole(*gone)) << "step " << step;
      arrays.erase(gone);
    }
  }
  EXPECT_TRUE(std::ranges::all_of(arrays, whole));
}

TEST(AlignedArray, AnyThreadTakesAndGivesBack) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      const auto mine = static_cast<std::byte>(i);
      AlignedArray kept(100 * kKiB, AlignedArray::Fill::kNone);
      for (int turn = 0; turn < 50; ++turn) {
        std::fill_n(kept.data(), kept.bytes(), mine);
        AlignedArray next(100 * kKiB + static_cast<std::size_t>(turn) * 64, AlignedArray::Fill::kNone);
        std::fill_n(next.data(), next.bytes(), mine);
        EXPECT_TRUE(std::all_of(kept.data(), kept.data() + kept.bytes(), [&](std::byte b) { return b == mine; }));
        kept = std::move(next);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(AlignedArray, OnesOfSomeSizeShareHugePages) {
  std::vector<AlignedArray> matrices;
  for (int i = 0; i < 24; ++i) matrices.emplace_back(300 * kKiB);
  std::vector<std::uintptr_t> pages;
  for (const AlignedArray& matrix : matrices) pages.push_back(place_of(matrix.data()) / huge_pages::kPageBytes);
  std::ranges::sort(pages);
  const auto [more, end] = std::ranges::unique(pages);
  EXPECT_LE(more - pages.begin(), 6) << "24 x 300 KiB begin in four pages, if others lie between in some more";
}

TEST(AlignedArray, AsksForHugePages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled"))
    GTEST_SKIP() << "a kernel without huge pages";
  for (const std::size_t bytes : {300 * kKiB, 7 * kMiB, 9 * kMiB}) {
    const AlignedArray array(bytes);
    EXPECT_NE(flags_of_mapping(array.data()).find(" hg "), std::string::npos) << bytes;
    EXPECT_NE(flags_of_mapping(array.data() + bytes - 1).find(" hg "), std::string::npos) << bytes;
  }
}

TEST(AlignedArray, TheKernelGetsPagesBackThatNobodyHas) {
  std::vector<AlignedArray> arrays;
  for (int i = 0; i < 12; ++i) arrays.emplace_back(7 * kMiB);
  std::vector<std::byte*> places;
  for (AlignedArray& array : arrays) places.push_back(array.data());
  arrays.clear();
  // Of 84 MiB no more stay than the first region, where another test's array may lie, and the last one, which is open: of 32 MiB each.
  std::size_t left = 0;
  for (std::byte* place : places) {
    auto* const page = reinterpret_cast<void*>(place_of(place) / (4 * kKiB) * (4 * kKiB));
    left += msync(page, 1, MS_ASYNC) == 0 ? 1 : 0;
  }
  EXPECT_LE(left, 8U);
}

}  // namespace
}  // namespace specdec
