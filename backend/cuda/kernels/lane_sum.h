#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/device.h"

namespace specdec::cuda {

/// Entries of a lane that one thread adds up.
inline constexpr int kRunEntries = 16;
/// Runs whose sums are read at a time.
inline constexpr int kRunsRead = 8;

/// What a run of entries adds to the sum before it, found without that sum. As long as a sum stays between two powers of two, its doubles are as far apart
/// from end to end: each addition rounds the entry to that distance, and only a tie asks whether the sum is an even or an odd multiple of it. So the run is
/// added to two sums that are known, the least of that range and the next one, and what it adds to them it adds to every even and every odd one.
struct RunSum {
  double to_even;
  double to_odd;
};

/// The block's memory in a lane_sum, for a block of up to 1024 threads.
struct LaneSumMemory {
  static constexpr int kRuns = 64;

  float entries[kRuns * kRunEntries * kRowLanes];
  RunSum runs[kRuns * kRowLanes];
  double sum[kRowLanes];
  std::int32_t next[kRowLanes];  ///< first run of the tile that is not in the sum yet
};

/// The least double of the range between powers of two that has `sum`; 0 for 0.
constexpr double least_of_range(double sum) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(sum) & 0x7ff0000000000000U);
}

/// `entries` of one lane, kRowLanes apart.
SPECDEC_DEVICE inline RunSum add_run(double sum, const float* entries) {
  const double even = least_of_range(sum);
  const auto odd = std::bit_cast<double>(std::bit_cast<std::uint64_t>(even) + 1);
  double to_even = even;
  double to_odd = odd;
  SPECDEC_UNROLL
  for (int i = 0; i < kRunEntries; ++i) {
    const auto entry = static_cast<double>(entries[i * kRowLanes]);
    to_even += entry;
    to_odd += entry;
  }
  return {to_even - even, to_odd - odd};
}

/// Brings one lane's runs [next, runs) into its sum, until one leaves the range that all were added in: that one entry by entry.
SPECDEC_DEVICE inline void take_runs(LaneSumMemory& memory, int lane, int runs) {
  double sum = memory.sum[lane];
  const double limit = 2.0 * least_of_range(sum);
  int run = memory.next[lane];
  int taken = 0;
  bool inside = true;
  // Read in batches and without a branch, so that only additions wait for one another.
  in_batches<kRunsRead>(
      runs - run, [&](int i) { return memory.runs[(run + i) * kRowLanes + lane]; },
      [&](int i, const RunSum& found) {
        const double more = (std::bit_cast<std::uint64_t>(sum) & 1U) == 0 ? found.to_even : found.to_odd;
        const double next = sum + more;
        // Where the sums of add_run left the range, so does this one.
        inside = inside && (more == 0.0 || next < limit);
        sum = inside ? next : sum;
        taken = inside ? i + 1 : taken;
      });
  run += taken;
  if (run < runs) {
    const float* entries = memory.entries + run * kRunEntries * kRowLanes + lane;
    SPECDEC_UNROLL
    for (int i = 0; i < kRunEntries; ++i) {
      sum += static_cast<double>(entries[i * kRowLanes]);
    }
    ++run;
  }
  memory.sum[lane] = sum;
  memory.next[lane] = run;
}

/// sum_of(x [0, count)) (backend/vector_math.h) where x(i) >= 0: entry i is added as a double in lane i mod 16, in order, then the lanes in their tree.
/// Every thread of the block, of one warp or more, gets it. Threads work side by side on runs of 16 entries, with the bits of one addition after another.
template <class Gpu, class Entry>
SPECDEC_DEVICE double lane_sum(Gpu& gpu, std::int64_t count, const Entry& x) {
  auto& memory = *reinterpret_cast<LaneSumMemory*>(gpu.shared());
  const int lane = gpu.thread() % kRowLanes;
  const int run = gpu.thread() / kRowLanes;
  const int runs = gpu.threads() / kRowLanes;
  float* const mine = memory.entries + run * kRunEntries * kRowLanes + lane;
  if (run == 0) {
    memory.sum[lane] = 0;
  }
  for (std::int64_t first = 0; first < count; first += std::int64_t{gpu.threads()} * kRunEntries) {
    const std::int64_t own = first + run * kRunEntries * kRowLanes + lane;
    float entry[kRunEntries];
    // A zero changes no sum.
    load_or_zero(entry, share_of(count - own, 0, kRowLanes), [&](int i) { return x(own + i * kRowLanes); });
    SPECDEC_UNROLL
    for (int i = 0; i < kRunEntries; ++i) {
      mine[i * kRowLanes] = entry[i];
    }
    if (run == 0) {
      memory.next[lane] = 0;
    }
    gpu.sync();
    for (bool done = false; !done;) {
      if (run >= memory.next[lane]) {
        memory.runs[gpu.thread()] = add_run(memory.sum[lane], mine);
      }
      gpu.sync();
      if (run == 0) {
        take_runs(memory, lane, runs);
      }
      gpu.sync();
      done = true;
      for (const std::int32_t next : memory.next) {
        done = done && next == runs;
      }
    }
    gpu.sync();
  }
  gpu.sync();
  const double total = tree_sum(gpu, memory.sum[lane]);
  gpu.sync();
  return total;
}

}  // namespace specdec::cuda
