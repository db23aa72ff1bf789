#pragma once

#include <functional>

#include "backend/error.h"
#include "parallel/watchdog.h"

namespace specdec {

/// What the watchdog does before it ends the job, for as long as this object lives.
class LastWords {
 public:
  LastWords(Watchdog& watchdog, const std::function<void(const Failure&)>& speak) : watchdog_(watchdog) {
    watchdog_.set_on_failure([speak](const Failure& failure) {
      try {
        speak(failure);
      } catch (const Error&) {
        // The line on stderr is out; that the results could not be written too must not change the exit code.
      }
    });
  }
  ~LastWords() { watchdog_.set_on_failure(nullptr); }
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  Watchdog& watchdog_;
};

}  // namespace specdec
