/// Which instruction sets this machine has, as a list of tests: tests/run.sh reads their names.
#include "tests/support/test_isa.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "backend/error.h"
#include "backend/factory.h"
#include "tests/support/all_isas.h"

namespace specdec::tests {
namespace {

class TestIsa : public ::testing::TestWithParam<Isa> {
 protected:
  TestIsa() {
    if (const char* const given = std::getenv(kVariable)) given_ = given;
  }
  ~TestIsa() override {
    if (given_.empty()) {
      unsetenv(kVariable);
    } else {
      setenv(kVariable, given_.c_str(), 1);
    }
  }
  static constexpr const char* kVariable = "SPECDEC_TEST_ISA";

 private:
  std::string given_;
};

TEST_P(TestIsa, IsForced) {
  const std::string name(name_of(GetParam()));
  setenv(kVariable, name.c_str(), 1);
  EXPECT_EQ(test_isa(), GetParam());
  EXPECT_NE(make_backend({.name = "cpu", .isa = test_isa()})->description().find("(" + name + ","), std::string::npos);
}

TEST_P(TestIsa, IsTheStrongestUnlessForced) {
  unsetenv(kVariable);
  EXPECT_EQ(test_isa(), all_isas().back());
  setenv(kVariable, "mmx", 1);
  EXPECT_THROW(test_isa(), Error);
}

INSTANTIATE_TEST_SUITE_P(Machine, TestIsa, ::testing::ValuesIn(all_isas()),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

}  // namespace
}  // namespace specdec::tests
