#include "tests/support/team_of_fibers.h"

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <exception>

#include "backend/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace specdec {
namespace {

/// A stack that is left and come back to. The address sanitizer has to be told; without it nobody is.
struct Stack {
  const void* lowest = nullptr;
  std::size_t bytes = 0;
  void* sanitized = nullptr;  ///< what the sanitizer keeps of it meanwhile

#if defined(__SANITIZE_ADDRESS__)
  void leave_for(const Stack& other) { __sanitizer_start_switch_fiber(&sanitized, other.lowest, other.bytes); }
  static void end_for(const Stack& other) { __sanitizer_start_switch_fiber(nullptr, other.lowest, other.bytes); }
  void arrive_from(Stack& other) { __sanitizer_finish_switch_fiber(sanitized, &other.lowest, &other.bytes); }
  void begin() { __asan_unpoison_memory_region(lowest, bytes); }
#else
  void leave_for(const Stack& /*other*/) {}
  static void end_for(const Stack& /*other*/) {}
  void arrive_from(Stack& /*other*/) {}
  void begin() {}
#endif
};

}  // namespace

struct TeamOfFibers::Fiber {
  static constexpr std::size_t kStackBytes = std::size_t{128} << 10;

  TeamOfFibers* team = nullptr;
  int thread = 0;
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};  // left as it comes: most of it is never touched
  Stack of_stack;
  ucontext_t context{};
  const Barrier* at = nullptr;  ///< where it waits
  unsigned long round = 0;      ///< of that barrier
  bool done = false;
};

struct TeamOfFibers::Scheduler {
  ucontext_t context{};
  Stack stack;
  Fiber* running = nullptr;
  const std::function<void(int)>* work = nullptr;
  std::exception_ptr error;
};

TeamOfFibers::TeamOfFibers(int threads) : scheduler_(std::make_unique<Scheduler>()) {
  for (int thread = 0; thread < threads; ++thread) {
    fibers_.push_back(std::make_unique<Fiber>());
    fibers_.back()->team = this;
    fibers_.back()->thread = thread;
  }
}

TeamOfFibers::~TeamOfFibers() = default;

void TeamOfFibers::Barrier::arrive_and_wait() {
  if (++arrived_ == count_) {
    arrived_ = 0;
    ++round_;
    return;
  }
  Fiber& fiber = *team_.scheduler_->running;
  fiber.at = this;
  fiber.round = round_;
  Scheduler& scheduler = *team_.scheduler_;
  fiber.of_stack.leave_for(scheduler.stack);
  swapcontext(&fiber.context, &scheduler.context);
  fiber.of_stack.arrive_from(scheduler.stack);
}

/// makecontext() hands on integers only.
void TeamOfFibers::enter(unsigned high, unsigned low) {
  auto& fiber = *reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
  Scheduler& scheduler = *fiber.team->scheduler_;
  fiber.of_stack.arrive_from(scheduler.stack);
  try {
    (*scheduler.work)(fiber.thread);
  } catch (...) {
    scheduler.error = std::current_exception();
  }
  fiber.done = true;
  Stack::end_for(scheduler.stack);
}

void TeamOfFibers::run(const std::function<void(int)>& work) {
  Scheduler& scheduler = *scheduler_;
  scheduler.work = &work;
  for (const auto& fiber : fibers_) {
    fiber->done = false;
    fiber->at = nullptr;
    fiber->of_stack = {fiber->stack.get(), Fiber::kStackBytes};
    fiber->of_stack.begin();
    check(getcontext(&fiber->context) == 0, "getcontext");
    fiber->context.uc_stack.ss_sp = fiber->stack.get();
    fiber->context.uc_stack.ss_size = Fiber::kStackBytes;
    fiber->context.uc_link = &scheduler.context;
    const auto address = reinterpret_cast<std::uintptr_t>(fiber.get());
    makecontext(&fiber->context, reinterpret_cast<void (*)()>(&TeamOfFibers::enter), 2,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
  }
  for (bool all_done = false; !all_done;) {
    all_done = true;
    bool any_ran = false;
    for (const auto& fiber : fibers_) {
      const bool waits = fiber->at != nullptr && fiber->at->round_ == fiber->round;
      if (!fiber->done && !waits) {
        fiber->at = nullptr;
        scheduler.running = fiber.get();
        scheduler.stack.leave_for(fiber->of_stack);
        swapcontext(&scheduler.context, &fiber->context);
        scheduler.stack.arrive_from(fiber->of_stack);
        any_ran = true;
        if (scheduler.error) {
          std::rethrow_exception(scheduler.error);
        }
      }
      all_done = all_done && fiber->done;
    }
    check(any_ran || all_done, "threads of a block wait at different barriers");
  }
}

}  // namespace specdec
