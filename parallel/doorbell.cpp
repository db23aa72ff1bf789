#include "parallel/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace specdec {
namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4,
              "a futex is a plain 32-bit word");

}  // namespace

void Doorbell::ring() {
  if (sleepers_.load(std::memory_order_seq_cst) == 0) {
    return;
  }
  rings_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::sleep(std::uint32_t heard) {
  constexpr timespec kAtMost{.tv_sec = 0, .tv_nsec = 50'000'000};
  syscall(SYS_futex, &rings_, FUTEX_WAIT, heard, &kAtMost, nullptr, 0);
}

}  // namespace specdec
