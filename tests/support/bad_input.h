#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "backend/error.h"

namespace specdec::tests {

/// Message of the Error(kBadInput) that `action` throws; fails the test when it throws none. Every such message is one line.
template <typename Action>
std::string bad_input(Action&& action) {
  try {
    std::forward<Action>(action)();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace specdec::tests
