#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cuda/kernels/peer_sum_kernel.h"
#include "backend/cuda/rank_sum.h"

namespace specdec::cuda {

/// How a payload is dealt out to the channels of an all-reduce among peers: the same on every rank, since it is of the payload alone.
struct PeerCut {
  std::int64_t piece = 0;  ///< elements of a channel in one step
  int channels = 0;        ///< that have work
};

/// `count` > 0 elements of `element_bytes`: channels side by side while pieces are worth a block, then larger pieces, then more steps.
constexpr PeerCut cut_for_peers(std::int64_t count, std::int64_t element_bytes) {
  constexpr std::int64_t kSmallest = 2 << 10;
  constexpr std::int64_t kPacket = 16;
  const std::int64_t bytes = count * element_bytes;
  const std::int64_t even = (bytes + kPeerChannels - 1) / kPeerChannels;
  const std::int64_t piece = std::clamp((even + kPacket - 1) / kPacket * kPacket, kSmallest, PeerLayout::kPlaceBytes);
  const std::int64_t pieces = (bytes + piece - 1) / piece;
  return {piece / element_bytes, static_cast<int>(std::min<std::int64_t>(pieces, kPeerChannels))};
}

/// data [count] = sum over `peers`, as one launch on a `Device` (gpu_backend.h). Every rank launches the same sums in the same order.
template <class Device, typename T>
void launch_peer_sum(Device& device, const Peers& peers, T* data, std::int64_t count, int threads = kPeerThreads) {
  check(threads >= peers.ranks, "launch_peer_sum: every rank is awaited by a thread");
  if (count == 0) {
    return;
  }
  const PeerCut cut = cut_for_peers(count, sizeof(T));
  with_places<kMostPeers>(peers.ranks, [&]<int kPlaces>() {
    device.template launch<&push_sum<typename Device::Gpu, T, kPlaces>>({.x = cut.channels, .threads = threads}, peers,
                                                                        data, count, cut.piece, cut.channels);
  });
}

}  // namespace specdec::cuda
