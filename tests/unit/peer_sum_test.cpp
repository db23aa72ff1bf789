#include "backend/cuda/peer_sum.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "backend/host_buffer.h"
#include "parallel/tree.h"
#include "tests/support/emulated_device.h"

/// GPUs that push into each other's memory, emulated: a rank is a thread, and so is every thread of its kernel. Under the thread sanitizer a push that
/// nobody has waited for, or a place that is written while it is read, is a data race.
namespace specdec {
namespace {

using cuda::PeerLayout;
using cuda::Peers;

constexpr int kBlockThreads = 16;  // of a block; a GPU has more

/// Ranks with their memory.
class Host {
 public:
  explicit Host(int ranks, std::uint32_t first_step = 0) : ranks_(ranks) {
    for (int r = 0; r < ranks; ++r) {
      memory_.push_back(std::make_unique<HostBuffer>(PeerLayout::bytes(ranks)));
      for (int channel = 0; channel < cuda::kPeerChannels; ++channel) {
        put(r, PeerLayout::counter(channel), first_step);
        for (int sender = 0; sender < ranks; ++sender) {
          put(r, PeerLayout::number(channel, sender), first_step);
        }
      }
    }
  }

  Peers peers(int rank) {
    Peers peers{.aborted = &aborted_, .rank = rank, .ranks = ranks_};
    for (int r = 0; r < ranks_; ++r) {
      peers.memory[r] = memory_[r]->data();
    }
    return peers;
  }

  void abort() { std::atomic_ref(aborted_).store(1); }

  /// body(rank) on a thread for each.
  void run(const std::function<void(int)>& body) const {
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks_; ++r) {
      threads.emplace_back(body, r);
    }
  }

 private:
  void put(int rank, std::int64_t offset, std::uint32_t value) {
    std::memcpy(memory_[rank]->data() + offset, &value, sizeof value);
  }

  int ranks_;
  std::vector<std::unique_ptr<HostBuffer>> memory_;
  std::uint32_t aborted_ = 0;
};

template <typename T>
std::vector<T> elements_of(int rank, std::size_t count, unsigned seed) {
  std::mt19937 generator(seed * 64 + static_cast<unsigned>(rank));
  std::vector<T> elements(count);
  for (T& element : elements) {
    const auto mantissa = static_cast<float>(static_cast<std::int32_t>(generator())) * 0x1p-31F;
    const float value = generator() % 16 == 0 ? -0.0F : std::ldexp(mantissa, static_cast<int>(generator() % 24) - 12);
    if constexpr (std::is_same_v<T, float>) {
      element = value;
    } else {
      element = {float_to_bf16(value)};
    }
  }
  return elements;
}

template <typename T>
std::vector<T> tree_of(int ranks, std::size_t count, unsigned seed) {
  std::vector<std::vector<T>> given;
  for (int r = 0; r < ranks; ++r) {
    given.push_back(elements_of<T>(r, count, seed));
  }
  const std::vector<std::span<const T>> leaves(given.begin(), given.end());
  std::vector<T> sum(count);
  tree_sum(leaves, sum);
  return sum;
}

/// One all-reduce, `offset` elements into what was allocated.
template <typename T>
void reduce(const Peers& peers, std::size_t count, unsigned seed, std::size_t offset = 0) {
  const std::vector<T> given = elements_of<T>(peers.rank, count, seed);
  HostBuffer buffer((count + offset) * sizeof(T));
  T* const data = reinterpret_cast<T*>(buffer.data()) + offset;
  std::ranges::copy(given, data);
  EmulatedDevice device;
  cuda::launch_peer_sum(device, peers, data, static_cast<std::int64_t>(count), kBlockThreads);
  const std::vector<T> sum = tree_of<T>(peers.ranks, count, seed);
  EXPECT_EQ(std::memcmp(data, sum.data(), count * sizeof(T)), 0)
      << "rank " << peers.rank << " of " << peers.ranks << ", " << count << " of " << sizeof(T) << " bytes";
}

class PeerSum : public ::testing::TestWithParam<int> {};

// From one element to several steps of all channels, which is where a half of a channel is used again.
TEST_P(PeerSum, HasTheTreesBitsWhateverTheSize) {
  Host host(GetParam());
  host.run([&](int rank) {
    const Peers peers = host.peers(rank);
    unsigned seed = 0;
    for (const std::size_t count : {1, 3, 513, 4096, 270'001}) {
      reduce<float>(peers, count, ++seed);
      reduce<BF16>(peers, count, ++seed);
    }
  });
}

TEST_P(PeerSum, ManyInARowOfChangingSizes) {
  Host host(GetParam());
  host.run([&](int rank) {
    const Peers peers = host.peers(rank);
    std::mt19937 shared(11);
    std::mt19937 own(static_cast<unsigned>(rank));
    for (unsigned seed = 0; seed < 60; ++seed) {
      const std::size_t count = 1 + shared() % 1500;
      if (own() % 8 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
      }
      reduce<float>(peers, count, seed);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, PeerSum, ::testing::Values(1, 2, 3, 4, 5, 8),
                         [](const auto& of) { return "ranks" + std::to_string(of.param); });

TEST(PeerSums, OfSixteenRanks) {
  Host host(16);
  host.run([&](int rank) { reduce<float>(host.peers(rank), 1000, 5); });
}

TEST(PeerSums, NumbersWrap) {
  Host host(3, 0xfffffffdU);
  host.run([&](int rank) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      reduce<float>(host.peers(rank), 600, seed);
    }
  });
}

TEST(PeerSums, NeedNoAlignment) {
  Host host(3);
  host.run([&](int rank) {
    for (std::size_t offset = 0; offset < 8; ++offset) {
      reduce<float>(host.peers(rank), 777, 1, offset);
      reduce<BF16>(host.peers(rank), 777, 2, offset);
    }
  });
}

TEST(PeerSums, AnAbortEndsTheWaitForARankThatDoesNotCome) {
  Host host(3);
  std::atomic<int> ended = 0;
  std::vector<std::jthread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&host, &ended, rank] {
      std::vector<float> data(400'000, 1);  // several steps
      EmulatedDevice device;
      cuda::launch_peer_sum(device, host.peers(rank), data.data(), std::ssize(data), kBlockThreads);
      ++ended;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(ended, 0);
  host.abort();
  threads.clear();
  EXPECT_EQ(ended, 2);
}

TEST(PeerSums, RefuseTooFewThreads) {
  Host host(5);
  float element = 0;
  EmulatedDevice device;
  EXPECT_THROW(cuda::launch_peer_sum(device, host.peers(0), &element, 1, 4), Error);
}

// All of a payload, whole packets, and as much of a place as there is.
TEST(PeerSums, CutsCoverThePayload) {
  for (const std::int64_t element : {2, 4}) {
    for (std::int64_t count = 1; count < 3'000'000; count += 1 + count / 3) {
      const cuda::PeerCut cut = cuda::cut_for_peers(count, element);
      EXPECT_EQ(cut.piece * element % 16, 0);
      EXPECT_LE(cut.piece * element, PeerLayout::kPlaceBytes);
      EXPECT_GE(cut.channels, 1);
      EXPECT_LE(cut.channels, cuda::kPeerChannels);
      EXPECT_LT((cut.channels - 1) * cut.piece, count) << "a channel without work";
      if (cut.channels < cuda::kPeerChannels) {
        EXPECT_GE(cut.channels * cut.piece, count) << "work without a channel";
      }
    }
  }
}

TEST(PeerSums, NothingInAPeersMemoryOverlaps) {
  constexpr int kRanks = 3;
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;
  for (int channel = 0; channel < cuda::kPeerChannels; ++channel) {
    parts.emplace_back(PeerLayout::counter(channel), PeerLayout::kLine);
    for (int sender = 0; sender < kRanks; ++sender) {
      parts.emplace_back(PeerLayout::number(channel, sender), PeerLayout::kLine);
      for (const std::uint32_t half : {0U, 1U}) {
        parts.emplace_back(PeerLayout::place(channel, half, sender, kRanks), PeerLayout::kPlaceBytes);
      }
    }
  }
  std::ranges::sort(parts);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    EXPECT_LE(parts[i].first + parts[i].second, parts[i + 1].first);
  }
  EXPECT_LE(parts.back().first + parts.back().second, PeerLayout::bytes(kRanks));
}

}  // namespace
}  // namespace specdec
