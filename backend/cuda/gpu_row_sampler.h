#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/kernels/cut_kernel.h"
#include "backend/cuda/kernels/decision_kernels.h"
#include "backend/cuda/kernels/draw_kernel.h"
#include "backend/cuda/kernels/sampling_kernels.h"
#include "backend/error.h"
#include "backend/row_sampler.h"

namespace specdec::cuda {

/// The operations of a RowSampler as launches of kernels on a `Device` (gpu_backend.h). Blocks that have a part of a row are of kPartThreads threads, those
/// that have a whole one of kRowThreads; no bit depends on either.
template <class Device, int kPartThreads = 256, int kRowThreads = 1024>
class GpuRowSampler final : public RowSampler {
 public:
  GpuRowSampler(Device& device, const SamplingParams& params) : device_(device), params_(params) {}

  void warp(ConstRows logits, Rows probabilities, RowRecord* records, Stream /*stream*/) override {
    check_shapes(logits, probabilities);
    const Peak* const peaks = find_peaks(logits);
    device_.template launch<&cuda::weigh<Gpu>>(parts(logits), logits, params_.temperature, peaks, probabilities,
                                               records);
    if (params_.greedy()) {
      return;
    }
    auto* const cuts = cuts_.template take<RowCut>(device_, logits.rows);
    const Truncation truncation{params_.top_k, params_.top_p};
    device_.template launch<&find_cuts<Gpu>>(whole(logits, kCutSharedBytes), ConstRows(probabilities), truncation,
                                             cuts);
    device_.template launch<&normalise<Gpu>>(parts(logits), probabilities, cuts);
  }

  void sums(ConstRows logits, std::span<const Range> slices, RowRecord* records, Stream /*stream*/) override {
    const std::int64_t count = std::ssize(slices);
    auto* const slice_sums = slice_sums_.template take<SliceSum>(device_, logits.rows * count);
    const Grid grid{.x = count, .y = logits.rows, .threads = kDecisionThreads, .shared_bytes = kDecisionSharedBytes};
    device_.template launch<&slice_sum<Gpu>>(grid, logits, params_.temperature, slices_.on(device_, slices), count,
                                             slice_sums);
    device_.template launch<&combine_sums<Gpu>>({.x = logits.rows, .threads = kWarp}, slice_sums, count, records);
  }
  void warp_with_sums(ConstRows logits, Rows probabilities, RowRecord* records, Stream /*stream*/) override {
    check_shapes(logits, probabilities);
    device_.template launch<&cuda::warp_with_sums<Gpu>>(parts(logits), logits, params_.temperature, probabilities,
                                                        records);
  }

  void hand_on(std::span<const RowRecord> drawn, RowRecord* asked, std::int32_t* tokens, Stream /*stream*/) override {
    device_.template launch<&cuda::hand_on<Gpu>>({.threads = kWarp}, drawn.data(), std::ssize(drawn), asked, tokens);
  }

  void entries(ConstRows rows, RowRecord* records, Stream /*stream*/) override {
    device_.template launch<&take_entries<Gpu>>({.x = rows.rows, .threads = kWarp}, rows, records);
  }

  void point_masses(const RowRecord* records, Rows out, Stream /*stream*/) override {
    device_.template launch<&cuda::point_masses<Gpu>>(parts(out), records, out);
  }
  void residuals(ConstRows p, ConstRows q, Rows out, Stream /*stream*/) override {
    check_shapes(p, q);
    check_shapes(p, out);
    auto* const left = left_.template take<std::int32_t>(device_, p.rows * parts_of(p.cols));
    device_.template launch<&find_left<Gpu>>(parts(p), p, q, left);
    device_.template launch<&take_residuals<Gpu>>(parts(p), p, q, left, out);
  }

  void draw(ConstRows weights, RowRecord* records, std::int32_t* tokens, Stream /*stream*/) override {
    check_shapes(weights, weights);
    device_.template launch<&cuda::draw<Gpu>>(whole(weights, draw_shared_bytes(weights.cols)), weights, records,
                                              tokens);
  }
  void argmax(ConstRows values, RowRecord* records, std::int32_t* tokens, Stream /*stream*/) override {
    check_shapes(values, values);
    const Peak* const peaks = find_peaks(values);
    device_.template launch<&take_argmax<Gpu>>(
        {.y = values.rows, .threads = kPartThreads, .shared_bytes = kReduceBytes}, values, peaks, records, tokens);
  }

 private:
  using Gpu = typename Device::Gpu;
  static_assert(kRowThreads <= LaneSumMemory::kRuns * kRowLanes);
  static constexpr std::size_t kReduceBytes = kPartThreads * sizeof(Peak);

  static void check_shapes(ConstRows a, ConstRows b) {
    check(a.rows == b.rows && a.cols == b.cols, "rows that belong together have one shape");
    check(0 < a.cols && a.cols <= kMostSampledTokens, "the vocabulary is too large to be sampled from on a GPU");
  }
  static Grid parts(ConstRows rows) {
    return {.x = parts_of(rows.cols), .y = rows.rows, .threads = kPartThreads, .shared_bytes = kReduceBytes};
  }
  static Grid whole(ConstRows rows, std::size_t shared_bytes) {
    return {.y = rows.rows, .threads = kRowThreads, .shared_bytes = shared_bytes};
  }
  const Peak* find_peaks(ConstRows x) {
    auto* const peaks = peaks_.template take<Peak>(device_, x.rows * parts_of(x.cols));
    device_.template launch<&cuda::find_peaks<Gpu>>(parts(x), x, peaks);
    return peaks;
  }

  Device& device_;
  SamplingParams params_;
  Scratch<Device> peaks_;
  Scratch<Device> cuts_;
  Scratch<Device> slice_sums_;
  Scratch<Device> left_;
  Constants<Device, Range> slices_;
};

}  // namespace specdec::cuda
