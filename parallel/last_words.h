#pragma once

#include <exception>
#include <functional>
#include <utility>

#include "parallel/watchdog.h"

namespace specdec {

/// What the watchdog does before it ends the job, for as long as this object lives; the newest first.
class LastWords {
 public:
  /// `speak`: see Watchdog::on_failure(). That results could not be written must not change how the job ends, so an exception in it goes nowhere.
  LastWords(Watchdog& watchdog, std::function<void(const Failure&)> speak)
      : watchdog_(watchdog), number_(watchdog.on_failure([speak = std::move(speak)](const Failure& failure) {
          try {
            speak(failure);
          } catch (const std::exception&) {
          }
        })) {}
  ~LastWords() { watchdog_.take_back(number_); }
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  Watchdog& watchdog_;
  const int number_;
};

}  // namespace specdec
