#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/device.h"
#include "backend/cuda/kernels/rank_sum_kernel.h"

/// An all-reduce of one kernel among GPUs that reach each other's memory: every rank pushes its payload into every other's memory and a number after it,
/// waits for the numbers in its own, and adds up what lies there, in the one tree.
///
/// A rank's memory has kPeerChannels channels, one for each block of the grid, which share nothing. In a channel every sender has a place in each of two
/// halves, used in turn, and a number: of the last step that it has pushed. To push step s means to have read step s - 1 to its end, so whoever has seen my number s - 1
/// knows that step s - 2 has been read, and may push step s into the half that it lay in. Numbers are counted in the device's memory, so that a CUDA graph
/// that is replayed counts on; they wrap, and are compared by their difference.
namespace specdec::cuda {

inline constexpr int kMostPeers = 16;
inline constexpr int kPeerChannels = 32;
inline constexpr int kPeerThreads = 256;

/// Of a rank's memory; everything that two ranks write lies on cache lines of its own.
struct PeerLayout {
  static constexpr std::int64_t kLine = 128;
  static constexpr std::int64_t kPlaceBytes = 16 << 10;  ///< a sender's, in one half of a channel

  /// Of the last step of a channel, this rank's own count.
  static constexpr std::int64_t counter(int channel) { return channel * kLine; }
  /// The number that `sender` has pushed.
  static constexpr std::int64_t number(int channel, int sender) {
    return (kPeerChannels + std::int64_t{channel} * kMostPeers + sender) * kLine;
  }
  static constexpr std::int64_t place(int channel, std::uint32_t step, int sender, int ranks) {
    return number(kPeerChannels, 0) + ((channel * 2 + step % 2) * ranks + sender) * kPlaceBytes;
  }
  static constexpr std::int64_t bytes(int ranks) { return place(kPeerChannels, 0, 0, ranks); }
};

/// What one rank knows of all: each rank's memory as this rank reaches it, of PeerLayout::bytes, zeroed before the first step.
struct Peers {
  /// Not before all ranks' payloads have come. Blocks that have started keep their place while they wait, and what another rank on the same GPU has yet to
  /// push might find none.
  static constexpr bool kLetsNextStart = true;

  std::byte* memory[kMostPeers] = {};
  const std::uint32_t* aborted = nullptr;  ///< not 0: nobody is waited for any more
  int rank = 0;
  int ranks = 1;

  SPECDEC_DEVICE std::uint32_t* word(int of, std::int64_t offset) const {
    return reinterpret_cast<std::uint32_t*>(memory[of] + offset);
  }
  template <typename T>
  SPECDEC_DEVICE T* place(int of, int channel, std::uint32_t step, int sender) const {
    return reinterpret_cast<T*>(memory[of] + PeerLayout::place(channel, step, sender, ranks));
  }
};

/// 16 bytes that travel together.
template <typename T>
struct alignas(16) Packet {
  static constexpr int kElements = 16 / sizeof(T);
  T element[kElements];
};

template <typename T>
SPECDEC_DEVICE Packet<T> add_over_ranks(const Packet<T>& lower, const Packet<T>& upper) {
  Packet<T> sum;
  SPECDEC_UNROLL
  for (int i = 0; i < Packet<T>::kElements; ++i) {
    sum.element[i] = add_over_ranks(lower.element[i], upper.element[i]);
  }
  return sum;
}

/// What rank r has given to packet (or element) i of a step: this rank's own from where it lies, the others' from where they pushed it.
template <typename V>
struct PushedLeaf {
  const V* own;
  const V* pushed;  ///< by rank 0; the other ranks' places follow
  std::int64_t i;
  int rank;
  SPECDEC_DEVICE V operator()(int r) const {
    return r == rank ? own[i] : pushed[r * (PeerLayout::kPlaceBytes / std::int64_t{sizeof(V)}) + i];
  }
};

/// Elements [first, last) of `data`, counted in V, into this rank's place at every other.
template <typename V, int kPlaces, class Gpu, typename T>
SPECDEC_DEVICE void push(Gpu& gpu, const Peers& peers, int channel, std::uint32_t step, const T* data,
                         std::int64_t first, std::int64_t last) {
  const V* const from = reinterpret_cast<const V*>(data);
  for (std::int64_t i = first + gpu.thread(); i < last; i += gpu.threads()) {
    const V value = from[i];
    SPECDEC_UNROLL
    for (int to = 0; to < kPlaces; ++to) {
      if (to < peers.ranks && to != peers.rank) {
        peers.place<V>(to, channel, step, peers.rank)[i] = value;
      }
    }
  }
}

template <typename V, int kPlaces, class Gpu, typename T>
SPECDEC_DEVICE void add_up(Gpu& gpu, const Peers& peers, int channel, std::uint32_t step, T* data, std::int64_t first,
                           std::int64_t last) {
  V* const own = reinterpret_cast<V*>(data);
  const V* const pushed = peers.place<V>(peers.rank, channel, step, 0);
  for (std::int64_t i = first + gpu.thread(); i < last; i += gpu.threads()) {
    own[i] = sum_of_places<kPlaces>(PushedLeaf<V>{own, pushed, i, peers.rank}, 0, peers.ranks);
  }
}

/// Until `number`, which another rank stores, has come to `step`; false when peers.aborted was set first.
template <class Gpu>
SPECDEC_DEVICE bool await(Gpu& gpu, const Peers& peers, const std::uint32_t* number, std::uint32_t step) {
  constexpr unsigned kPollsBetweenLooks = 256;  // at the flag, which lies in host memory
  for (unsigned polls = 1; static_cast<std::int32_t>(gpu.load_acquire(number) - step) < 0; ++polls) {
    if (polls % kPollsBetweenLooks == 0 && gpu.load_acquire(peers.aborted) != 0) {
      return false;
    }
    gpu.pause();
  }
  return true;
}

/// data [count] = sum over ranks. Blocks: at most kPeerChannels, as many on every rank; each takes a piece of `piece` elements at a time, a multiple of 16 bytes
/// of at most PeerLayout::kPlaceBytes. When `peers.aborted` is set meanwhile it ends soon, with anything in `data`,
/// and neither reads what was not pushed nor pushes to where somebody may read.
template <class Gpu, typename T, int kPlaces>
SPECDEC_DEVICE void push_sum(Gpu& gpu, Peers peers, T* data, std::int64_t count, std::int64_t piece, int channels) {
  const int channel = static_cast<int>(gpu.block_x());
  const int thread = gpu.thread();
  const bool signals = thread < peers.ranks && thread != peers.rank;
  std::uint32_t* const counter = peers.word(peers.rank, PeerLayout::counter(channel));
  const std::uint32_t before = *counter;
  std::uint32_t step = before;
  for (std::int64_t begin = channel * piece; begin < count; begin += channels * piece) {
    ++step;
    T* const mine = data + begin;
    const std::int64_t elements = count - begin < piece ? count - begin : piece;
    const bool aligned = reinterpret_cast<std::uintptr_t>(mine) % sizeof(Packet<T>) == 0;
    const std::int64_t packets = aligned ? elements / Packet<T>::kElements : 0;
    const std::int64_t rest = packets * Packet<T>::kElements;
    push<Packet<T>, kPlaces>(gpu, peers, channel, step, mine, 0, packets);
    push<T, kPlaces>(gpu, peers, channel, step, mine, rest, elements);
    gpu.sync();  // all has been pushed, and all of the step before has been read
    bool has_come = true;
    if (signals) {
      gpu.store_release(peers.word(thread, PeerLayout::number(channel, peers.rank)), step);
      has_come = await(gpu, peers, peers.word(peers.rank, PeerLayout::number(channel, thread)), step);
    }
    if (!gpu.sync_all(has_come)) {
      return;
    }
    if (begin + channels * piece >= count) {
      gpu.let_next_start();
    }
    add_up<Packet<T>, kPlaces>(gpu, peers, channel, step, mine, 0, packets);
    add_up<T, kPlaces>(gpu, peers, channel, step, mine, rest, elements);
  }
  if (thread == 0 && step != before) {
    *counter = step;
  }
}

}  // namespace specdec::cuda
