// Every transport between processes does what Communicator promises, and all that add in the tree have the same bits.

#include <algorithm>
#include <string>

#include "mpi_test.h"
#include "parallel/timed_communicator.h"
#include "tests/support/communicator_battery.h"

namespace specdec {
namespace {

using mpi_test::session;

constexpr std::size_t kLargest = std::size_t{64} << 20;

class Transport : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Communicator> world_ = session().world(GetParam());
};

TEST_P(Transport, Sums) { battery::expect_sums(*world_, kLargest); }

TEST_P(Transport, Moves) { battery::expect_moves(*world_, 1 << 20); }

TEST_P(Transport, OperationsInAnyOrder) { battery::expect_any_order(*world_, 500, 1 << 20); }

TEST_P(Transport, BehindADecorator) {
  TimedCommunicator timed(*world_);
  battery::expect_any_order(timed, 200, 1 << 20);
}

INSTANTIATE_TEST_SUITE_P(InTheTree, Transport, testing::Values("shm", "hier", "mpi"),
                         testing::PrintToStringParamName());

TEST(Conformance, MpiFastAddsInAnyOrder) { battery::expect_exact_sums(*session().world("mpi-fast"), kLargest); }

TEST(Conformance, AutoIsSharedMemoryOnOneHost) {
  EXPECT_EQ(session().world("auto")->transport(), session().size() == 1 ? "self" : "shm");
}

}  // namespace
}  // namespace specdec
