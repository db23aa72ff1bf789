#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace specdec::tests {

/// How many of `bytes` from `begin` on lie in memory, in whole pages.
inline std::size_t resident(const void* begin, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(begin) / page * page;
  std::vector<unsigned char> pages((reinterpret_cast<std::uintptr_t>(begin) - first + bytes + page - 1) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(first), pages.size() * page, pages.data()), 0);
  return page * static_cast<std::size_t>(std::ranges::count_if(pages, [](unsigned char of) { return of & 1; }));
}

}  // namespace specdec::tests
