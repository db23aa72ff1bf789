// Every transport between processes does what Communicator promises, and all that add in the tree have the same bits.

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "mpi_test.h"
#include "parallel/modelled_link.h"
#include "parallel/timed_communicator.h"
#include "parallel/value_bytes.h"
#include "tests/support/communicator_battery.h"
#include "tests/support/modelled_promise.h"

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

Interconnect some_network() {
  Interconnect out;
  out.link = {.algorithm = LinkAlgorithm::kTree, .latency = 2e-6, .bandwidth = 5e9};
  out.jitter = {.sigma = 0.3, .tail_probability = 0.05, .tail_mean = 1e-4};
  return out;
}

TEST_P(Transport, UnderAModelledInterconnect) {
  const std::unique_ptr<ModelledLink> link = make_modelled_link(*world_, 3);
  battery::expect_never_shorter(*link, some_network(), 3, 100);
  link->use(some_network());
  battery::expect_sums(*link, 1 << 16);
  battery::expect_moves(*link, 1 << 10);
  battery::expect_any_order(*link, 100, 1 << 18);
}

// Small messages of MPI leave before anybody has asked for them, so a root that broadcasts in a row is far ahead of the others.
TEST_P(Transport, ModelledRootsDoNotOutrunWhatIsRemembered) {
  const std::unique_ptr<ModelledLink> link = make_modelled_link(*world_, 3);
  link->use(some_network());
  if (link->rank() != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (int i = 0; i < 500; ++i) {
    int number = link->rank() == 0 ? i : -1;
    link->broadcast(value_bytes(number), 0, Stream{});
    ASSERT_EQ(number, i);
  }
}

INSTANTIATE_TEST_SUITE_P(InTheTree, Transport, testing::Values("shm", "hier", "mpi"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(Conformance, MpiFastAddsInAnyOrder) { battery::expect_exact_sums(*session().world("mpi-fast"), kLargest); }

TEST(Conformance, AutoIsSharedMemoryOnOneHost) {
  EXPECT_EQ(session().world("auto")->transport(), session().size() == 1 ? "self" : "shm");
}

}  // namespace
}  // namespace specdec
