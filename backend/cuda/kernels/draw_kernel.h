#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/device.h"
#include "backend/cuda/kernels/sampling_kernels.h"
#include "backend/row_sampler.h"
#include "backend/sampler.h"

namespace specdec::cuda {

inline constexpr int kDrawLoads = 16;

constexpr std::int64_t draw_blocks(std::int64_t cols) {
  constexpr auto kBlock = static_cast<std::int64_t>(kDrawBlock);
  return (cols + kBlock - 1) / kBlock;
}

/// The sums up to and with each block of entries, which of them is the first to exceed the goal, and its entries.
constexpr std::size_t draw_shared_bytes(std::int64_t cols) {
  return (static_cast<std::size_t>(draw_blocks(cols)) + 1) * sizeof(double) + kDrawBlock * sizeof(float);
}

/// One thread: the running sums of `sums`, in place.
SPECDEC_DEVICE inline void add_up(double* sums, std::int64_t count) {
  double total = 0;
  in_batches<kDrawLoads>(
      static_cast<int>(count), [&](int i) { return sums[i]; },
      [&](int i, double sum) {
        total += sum;
        sums[i] = total;
      });
}

/// One thread: the entry at which the sum, which starts at `running`, first exceeds the goal; else the last positive one.
SPECDEC_DEVICE inline int find_in_block(const float* entries, double running, double goal) {
  constexpr int kAhead = 8;
  int found = 0;
  bool reached = false;
  for (int first = 0; first < static_cast<int>(kDrawBlock) && !reached; first += kAhead) {
    float entry[kAhead];
    SPECDEC_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      entry[i] = entries[first + i];
    }
    SPECDEC_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (!reached && entry[i] > 0.0F) {
        found = first + i;
        running += static_cast<double>(entry[i]);
        reached = running > goal;
      }
    }
  }
  return found;
}

/// What backend/sampler.h draws, in its order: sums of blocks are independent, each in 16 lanes; what follows one another are the additions of these
/// sums, and of the entries of the block in which the token lies. Block y has row y.
template <class Gpu>
SPECDEC_DEVICE void draw(Gpu& gpu, ConstRows weights, RowRecord* records, std::int32_t* tokens) {
  constexpr auto kBlock = static_cast<std::int64_t>(kDrawBlock);
  const float* row = weights.row(gpu.block_y());
  RowRecord& record = records[gpu.block_y()];
  const std::int64_t blocks = draw_blocks(weights.cols);
  auto* const until = reinterpret_cast<double*>(gpu.shared());  // [blocks]
  auto* const found = reinterpret_cast<std::int64_t*>(until + blocks);
  auto* const entries = reinterpret_cast<float*>(found + 1);  // [kDrawBlock]

  // Two blocks a warp, one for each half.
  const int lane = gpu.thread() % kRowLanes;
  const int groups = gpu.threads() / kRowLanes;
  for (std::int64_t first = 0; first < blocks; first += groups) {
    const std::int64_t block = first + gpu.thread() / kRowLanes;
    double sum = 0;
    const std::int64_t own = block * kBlock + lane;
    const std::int64_t left = weights.cols - own;
    in_batches<kDrawLoads>(
        share_of(left < kBlock ? left : kBlock, 0, kRowLanes), [&](int i) { return row[own + i * kRowLanes]; },
        [&](int, float entry) { sum += static_cast<double>(entry); });
    for (int half = kRowLanes / 2; half > 0; half /= 2) {
      const double other = gpu.shuffle(sum, (gpu.thread() + half) % kWarp);
      sum = sum + other;
    }
    if (lane == 0 && block < blocks) {
      until[block] = sum;
    }
  }
  gpu.sync();

  if (gpu.thread() == 0) {
    add_up(until, blocks);
    *found = -1;
  }
  gpu.sync();

  const double total = until[blocks - 1];
  const double goal = record.uniform * total;
  for (std::int64_t block = gpu.thread(); block < blocks; block += gpu.threads()) {
    // Sums do not fall from block to block, so there is one such block at most.
    if (until[block] > goal && (block == 0 || !(until[block - 1] > goal))) {
      *found = block;
    }
  }
  gpu.sync();

  const std::int64_t block = *found;
  for (int i = gpu.thread(); block >= 0 && i < kBlock; i += gpu.threads()) {
    const std::int64_t at = block * kBlock + i;
    entries[i] = at < weights.cols ? row[at] : 0.0F;
  }
  gpu.sync();
  if (gpu.thread() == 0) {
    std::int32_t token = -1;
    if (block >= 0 && total > 0.0) {
      const double before = block == 0 ? 0.0 : until[block - 1];
      token = static_cast<std::int32_t>(block * kBlock + find_in_block(entries, before, goal));
    }
    leave_token(token, row, record, tokens == nullptr ? nullptr : tokens + gpu.block_y());
  }
}

}  // namespace specdec::cuda
