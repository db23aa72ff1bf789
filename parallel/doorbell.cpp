#include "parallel/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

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
  wake(1);
}

void Doorbell::pass_on() {
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    wake(2);
  }
}

void Doorbell::wake(int sleepers) { syscall(SYS_futex, &rings_, FUTEX_WAKE, sleepers, nullptr, nullptr, 0); }

void Doorbell::sleep(std::uint32_t heard, std::chrono::nanoseconds at_most) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec limit{.tv_sec = whole.count(), .tv_nsec = (at_most - whole).count()};
  syscall(SYS_futex, &rings_, FUTEX_WAIT, heard, &limit, nullptr, 0);
}

}  // namespace specdec
