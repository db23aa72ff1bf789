// Every transport between processes does what Communicator promises, and all that add in the tree have the same bits.

#include <string>

#include "mpi_test.h"
#include "parallel/timed_communicator.h"
#include "tests/support/communicator_battery.h"

namespace specdec {
namespace {

constexpr std::size_t kLargest = std::size_t{64} << 20;

class Transport : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Communicator> world_ = mpi_test::session().world(GetParam());
};

TEST_P(Transport, Sums) {
  if (std::string(GetParam()) == "mpi-fast") {
    battery::expect_exact_sums(*world_, kLargest);
  } else {
    battery::expect_sums(*world_, kLargest);
  }
}

TEST_P(Transport, Moves) { battery::expect_moves(*world_, 1 << 20); }

TEST_P(Transport, OperationsInAnyOrder) {
  if (std::string(GetParam()) != "mpi-fast") {
    battery::expect_any_order(*world_, 500, 1 << 20);
  }
}

TEST_P(Transport, BehindADecorator) {
  if (std::string(GetParam()) != "mpi-fast") {
    TimedCommunicator timed(*world_);
    battery::expect_any_order(timed, 200, 1 << 20);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Transport, testing::Values("auto", "shm", "hier", "mpi", "mpi-fast"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace specdec
