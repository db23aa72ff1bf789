#include "tests/support/team_of_fibers.h"

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <exception>

#include "backend/error.h"

namespace specdec {

struct TeamOfFibers::Fiber {
  static constexpr std::size_t kStackBytes = std::size_t{128} << 10;

  TeamOfFibers* team = nullptr;
  int thread = 0;
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};  // left as it comes: most of it is never touched
  ucontext_t context{};
  const Barrier* at = nullptr;  ///< where it waits
  unsigned long round = 0;      ///< of that barrier
  bool done = false;
};

struct TeamOfFibers::Scheduler {
  ucontext_t context{};
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
  swapcontext(&fiber.context, &team_.scheduler_->context);
}

/// makecontext() hands on integers only.
void TeamOfFibers::enter(unsigned high, unsigned low) {
  auto& fiber = *reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
  Scheduler& scheduler = *fiber.team->scheduler_;
  try {
    (*scheduler.work)(fiber.thread);
  } catch (...) {
    scheduler.error = std::current_exception();
  }
  fiber.done = true;
}

void TeamOfFibers::run(const std::function<void(int)>& work) {
  Scheduler& scheduler = *scheduler_;
  scheduler.work = &work;
  for (const auto& fiber : fibers_) {
    fiber->done = false;
    fiber->at = nullptr;
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
        swapcontext(&scheduler.context, &fiber->context);
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
