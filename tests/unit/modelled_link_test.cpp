// ModelledLink over shm with threads in the place of processes: the promise as logic, by the clock that the link itself reads. How near
// above the model it stays is a benchmark (tests/bench/modelled_link_bench.cpp).

#include "parallel/modelled_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "parallel/self_communicator.h"
#include "parallel/shm_communicator.h"
#include "tests/support/bad_input.h"
#include "tests/support/communicator_battery.h"
#include "tests/support/modelled_promise.h"

namespace specdec {
namespace {

constexpr std::uint64_t kLinkSeed = 3;

Interconnect some_network() {
  Interconnect out;
  out.link = {.algorithm = LinkAlgorithm::kRing, .latency = 2e-6, .bandwidth = 5e9};
  out.overhead = 1e-5;
  out.jitter = {.sigma = 0.3, .tail_probability = 0.05, .tail_mean = 1e-4};
  return out;
}

/// Real time is always longer.
Interconnect no_time() {
  Interconnect out;
  out.overhead = 1e-9;
  out.link = {.algorithm = LinkAlgorithm::kOneShot, .latency = 0, .bandwidth = 1e30};
  return out;
}

class ModelledLinkOnThreads : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  /// Runs body(link) on a thread a rank. Checks inside must not throw: the other ranks would wait for ever.
  static void run(const std::function<void(ModelledLink&)>& body) {
    const auto [ranks, cores] = GetParam();
    const auto region = [](std::size_t bytes) {
      return std::make_shared<SharedRegion>(SharedRegion::of_this_process(bytes));
    };
    const auto data = region(ShmCommunicator::region_bytes(ranks));
    const auto arrivals = region(Arrivals::region_bytes(ranks));
    std::vector<std::jthread> threads;
    threads.reserve(ranks);
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r, size = ranks, options = ShmOptions{.cores = cores, .reduction = {}}] {
        Progress progress;
        ShmCommunicator group(data, r, size, progress, options);
        ModelledLink link(group, std::make_unique<Arrivals>(arrivals, r, size), kLinkSeed, options.cores);
        body(link);
      });
    }
  }
};

TEST_P(ModelledLinkOnThreads, CarriesWhatItsTransportCarries) {
  run([](ModelledLink& link) {
    link.use(some_network());
    battery::expect_sums(link, 1 << 16);
    battery::expect_moves(link, 5000);
    battery::expect_any_order(link, 300, 1 << 18);
  });
}

TEST_P(ModelledLinkOnThreads, IsNeverShorterThanTheModel) {
  run([](ModelledLink& link) { battery::expect_never_shorter(link, some_network(), kLinkSeed, 300); });
}

TEST_P(ModelledLinkOnThreads, CountsWhatIsLate) {
  run([](ModelledLink& link) {
    link.use(no_time());
    std::vector<float> data(1000);
    for (int i = 0; i < 50; ++i) {
      link.all_reduce(std::span(data), Stream{});
    }
    EXPECT_EQ(link.totals().collectives, 50);
    EXPECT_EQ(link.totals().late, 50);
    EXPECT_GT(link.totals().late_seconds, 0);
  });
}

TEST_P(ModelledLinkOnThreads, DrawsTheSameJitterOnEveryRank) {
  run([](ModelledLink& link) {
    link.use(some_network());
    std::vector<float> data(1000);
    for (int i = 0; i < 50; ++i) {
      link.all_reduce(std::span(data), Stream{});
    }
    const double mine = link.totals().modelled_seconds;
    std::vector<double> all(link.size());
    link.use({});
    link.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), Stream{});
    EXPECT_THAT(all, ::testing::Each(mine));
    EXPECT_NE(mine, 50 * some_network().all_reduce(4000, link.size()));
  });
}

TEST_P(ModelledLinkOnThreads, ChangesBetweenCollectives) {
  run([](ModelledLink& link) {
    EXPECT_EQ(link.interconnect(), nullptr);
    for (int i = 0; i < 20; ++i) {
      const bool modelled = i % 3 != 0;
      if (modelled) {
        link.use(some_network());
      } else {
        link.use({});
      }
      const std::int64_t before = link.totals().collectives;
      battery::expect_any_order(link, 10, 3000);
      link.barrier();
      if (modelled) {
        EXPECT_GT(link.totals().collectives, before);
      } else {
        EXPECT_EQ(link.totals().collectives, before);
      }
      EXPECT_EQ(link.interconnect() != nullptr, modelled);
    }
  });
}

TEST_P(ModelledLinkOnThreads, AnEmptyPayloadTakesNoTime) {
  run([](ModelledLink& link) {
    link.use(some_network());
    link.all_reduce(std::span<float>(), Stream{});
    link.all_gather({}, {}, Stream{});
    link.gather({}, {}, 0, Stream{});
    link.broadcast({}, 0, Stream{});
    EXPECT_EQ(link.totals().collectives, 0);
    link.barrier();
    EXPECT_EQ(link.totals().collectives, 1);
  });
}

INSTANTIATE_TEST_SUITE_P(All, ModelledLinkOnThreads,
                         ::testing::Combine(::testing::Values(2, 3, 5), ::testing::Values(1, 64)),
                         [](const auto& instance) {
                           return "ranks" + std::to_string(std::get<0>(instance.param)) +
                                  (std::get<1>(instance.param) == 1 ? "_shared_cores" : "_own_cores");
                         });

TEST(ModelledLink, OneRankWaitsForNobody) {
  SelfCommunicator alone;
  const std::unique_ptr<ModelledLink> link = make_modelled_link(alone, kLinkSeed);
  Interconnect network = some_network();
  network.overhead = 1e9;
  link->use(network);
  battery::expect_any_order(*link, 50, 1000);
  EXPECT_EQ(link->totals().collectives, 0);
}

/// Two ranks of which the other one is somewhere else.
class TwoPlaces final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string_view transport() const override { return "mpi"; }
  void all_reduce(std::span<float> /*data*/, Stream /*stream*/) override {}
  void all_reduce(std::span<BF16> /*data*/, Stream /*stream*/) override {}
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream /*stream*/) override {
    std::ranges::copy(mine, all.begin());
    std::ranges::copy(mine, all.begin() + static_cast<std::ptrdiff_t>(mine.size()));
    all[mine.size()] ^= std::byte{1};
  }
  void gather(std::span<const std::byte> /*mine*/, std::span<std::byte> /*all*/, int /*root*/, Stream /*s*/) override {}
  void broadcast(std::span<std::byte> /*data*/, int /*root*/, Stream /*stream*/) override {}
  void barrier() override {}
};

TEST(ModelledLink, RanksOnSeveralHostsAreRefused) {
  TwoPlaces group;
  EXPECT_THAT(tests::bad_input([&] { make_modelled_link(group, kLinkSeed); }),
              ::testing::StartsWith("interconnect: found 2 ranks on 2 hosts, expected all on one"));
}

}  // namespace
}  // namespace specdec
