#pragma once

#include <cstdint>

#include "parallel/doorbell.h"
#include "parallel/yielding.h"

namespace specdec {

/// How one rank waits for the others of its host: it looks for a while, then gives its core away between looks (yielding.h), then
/// sleeps until it is rung for.
class Waiter {
 public:
  enum class Expected : std::uint8_t {
    kShort,  ///< the others are about to come: a collective inside a pass
    kLong,   ///< rank 0 drafts or decides meanwhile, perhaps on this core
  };

  /// For `ranks` ranks on `cores` cores.
  Waiter(int ranks, int cores);

  /// Returns once `ready()` holds; whoever makes it hold rings `bell`.
  template <typename Ready>
  void wait(Doorbell& bell, Expected expected, Ready&& ready) {
    for (int i = 0; i < polls_; ++i) {
      if (ready()) {
        return;
      }
      relax();
    }
    if (yielding_.begin_wait()) {
      for (int yields = expected == Expected::kLong ? long_yields_ : yields_; yields > 0; --yields) {
        if (ready()) {
          return;
        }
        if (!yielding_.yield()) {
          break;
        }
      }
    }
    bell.sleep_until(ready);
  }

 private:
  static void relax();

  int polls_;
  int yields_;
  int long_yields_;
  Yielding yielding_;
};

}  // namespace specdec
