#include "backend/cpu/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#endif

namespace specdec::huge_pages {
namespace {

/// Larger pieces have pages of their own, fresh from the kernel each time: rounded up to whole ones they waste little.
constexpr std::size_t kMostShared = 4 * kPageBytes;
constexpr std::size_t kRegionBytes = 4 * kMostShared;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

/// What a piece takes of its region: a line more, in which the address sanitizer finds whoever goes past the end.
constexpr std::size_t taken_by(std::size_t bytes) { return round_up(bytes, kAlignment) + kAlignment; }

constexpr bool has_own_region(std::size_t bytes) { return taken_by(bytes) > kMostShared; }

class Mapped {
 public:
  explicit Mapped(std::size_t bytes) : bytes_(bytes) {
    const std::size_t reserved = bytes + kPageBytes;
    void* const found = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) throw std::bad_alloc();
    auto* const first = static_cast<std::byte*>(found);
    const std::size_t before =
        round_up(reinterpret_cast<std::uintptr_t>(first), kPageBytes) - reinterpret_cast<std::uintptr_t>(first);
    begin_ = first + before;
    if (before > 0) munmap(first, before);
    munmap(begin_ + bytes, kPageBytes - before);
    // Advice only: where huge pages are switched off all works the same, a little slower.
    static_cast<void>(madvise(begin_, bytes, MADV_HUGEPAGE));
    ASAN_POISON_MEMORY_REGION(begin_, bytes);
  }
  ~Mapped() {
    ASAN_UNPOISON_MEMORY_REGION(begin_, bytes_);
    munmap(begin_, bytes_);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  std::byte* begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* begin_ = nullptr;
  std::size_t bytes_;
};

struct Region {
  explicit Region(std::size_t bytes) : mapped(bytes) {}

  Mapped mapped;
  std::size_t used = 0;  ///< bytes from its begin
  std::size_t pieces = 0;
};

class Regions {
 public:
  std::byte* take(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const std::size_t taken = taken_by(bytes);
    Region* region = open_;
    if (has_own_region(bytes)) {
      region = &made(round_up(taken, kPageBytes));
    } else if (region == nullptr || region->mapped.bytes() - region->used < taken) {
      region = open_ = &made(kRegionBytes);
    }
    std::byte* const memory = region->mapped.begin() + region->used;
    region->used += taken;
    ++region->pieces;
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
    return memory;
  }

  void give_back(std::byte* memory, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const auto at = std::prev(by_begin_.upper_bound(memory));
    Region& region = *at->second;
    ASAN_POISON_MEMORY_REGION(memory, bytes);
    const std::size_t taken = taken_by(bytes);
    if (memory + taken == region.mapped.begin() + region.used) region.used -= taken;
    if (--region.pieces > 0) return;
    region.used = 0;
    if (open_ != &region) by_begin_.erase(at);
  }

 private:
  Region& made(std::size_t bytes) {
    auto region = std::make_unique<Region>(bytes);
    std::byte* const begin = region->mapped.begin();
    return *(by_begin_[begin] = std::move(region));
  }

  std::mutex mutex_;
  std::map<std::byte*, std::unique_ptr<Region>, std::less<>> by_begin_;
  Region* open_ = nullptr;  ///< which the next small piece goes to
};

/// Never destroyed: arrays may be given back while the process ends.
Regions& regions() {
  static Regions& all = *new Regions;
  return all;
}

}  // namespace

std::byte* take(std::size_t bytes) { return regions().take(bytes); }
std::byte* take_zeroed(std::size_t bytes) {
  std::byte* const memory = take(bytes);
  if (!has_own_region(bytes)) std::memset(memory, 0, bytes);
  return memory;
}
void give_back(std::byte* memory, std::size_t bytes) { regions().give_back(memory, bytes); }

}  // namespace specdec::huge_pages
