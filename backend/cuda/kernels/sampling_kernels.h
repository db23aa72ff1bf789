#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "backend/backend.h"
#include "backend/cuda/kernels/block_reduce.h"
#include "backend/cuda/kernels/device.h"
#include "backend/elementary.h"
#include "backend/row_sampler.h"
#include "backend/slice_sums.h"

/// Whole rows of logits, with the bits of backend/sampler.h. What treats every entry by itself runs in many blocks: block (x, y) has part x of row y. What
/// they find out about a row (its peak, say) is merged again by every block of the next kernel, which is cheaper than a kernel between them.
namespace specdec::cuda {

inline constexpr std::int64_t kPartEntries = 1024;

constexpr std::int64_t parts_of(std::int64_t cols) { return (cols + kPartEntries - 1) / kPartEntries; }

/// The part of a row that a block has.
template <class Gpu>
SPECDEC_DEVICE Range own_part(Gpu& gpu, std::int64_t cols) {
  const std::int64_t begin = gpu.block_x() * kPartEntries;
  return {begin, begin + kPartEntries < cols ? begin + kPartEntries : cols};
}

/// The largest entry of some entries, the first of equal ones, and whether one of them is NaN or +inf. A NaN is never the largest.
struct Peak {
  float value = -__builtin_inff();
  std::int32_t index = std::numeric_limits<std::int32_t>::max();
  std::int32_t broken = 0;
};

constexpr Peak merge(const Peak& a, const Peak& b) {
  const bool second = b.value > a.value || (b.value == a.value && b.index < a.index);
  return {second ? b.value : a.value, second ? b.index : a.index, a.broken | b.broken};
}

/// peaks [rows, parts].
template <class Gpu>
SPECDEC_DEVICE void find_peaks(Gpu& gpu, ConstRows x, Peak* peaks) {
  const Range own = own_part(gpu, x.cols);
  const float* row = x.row(gpu.block_y());
  Peak mine;
  for (std::int64_t i = own.begin + gpu.thread(); i < own.end; i += gpu.threads()) {
    const bool sound = row[i] <= std::numeric_limits<float>::max();
    mine = merge(mine, {row[i], static_cast<std::int32_t>(i), sound ? 0 : 1});
  }
  const Peak all = block_reduce(gpu, mine, [](const Peak& a, const Peak& b) { return merge(a, b); });
  if (gpu.thread() == 0) {
    peaks[gpu.block_y() * parts_of(x.cols) + gpu.block_x()] = all;
  }
}

/// Of the whole row of this block; every thread gets it. A row of nothing but NaN has its peak at 0.
template <class Gpu>
SPECDEC_DEVICE Peak peak_of_row(Gpu& gpu, std::int64_t cols, const Peak* peaks) {
  const std::int64_t parts = parts_of(cols);
  Peak mine;
  for (std::int64_t part = gpu.thread(); part < parts; part += gpu.threads()) {
    mine = merge(mine, peaks[gpu.block_y() * parts + part]);
  }
  Peak all = block_reduce(gpu, mine, [](const Peak& a, const Peak& b) { return merge(a, b); });
  all.index = all.index < cols ? all.index : 0;
  return all;
}

/// weights = exp(z - max z), or the point mass where the temperature leaves nothing else. At a temperature of 0 that is always so.
template <class Gpu>
SPECDEC_DEVICE void weigh(Gpu& gpu, ConstRows logits, float temperature, const Peak* peaks, Rows weights,
                          RowRecord* records) {
  const Range own = own_part(gpu, logits.cols);
  const float* row = logits.row(gpu.block_y());
  const Peak peak = peak_of_row(gpu, logits.cols, peaks);
  const bool empty = peak.value == -__builtin_inff();
  const RowFault fault = peak.broken != 0 ? RowFault::kNan : empty ? RowFault::kEmpty : RowFault::kNone;
  const float max_z = temperature == 0.0F ? 0.0F : peak.value / temperature;
  const bool point = temperature == 0.0F || !(max_z - max_z == 0.0F);
  for (std::int64_t i = own.begin + gpu.thread(); i < own.end; i += gpu.threads()) {
    const float weight = point ? (i == peak.index ? 1.0F : 0.0F) : elementary::exp(row[i] / temperature - max_z);
    weights.row(gpu.block_y())[i] = fault == RowFault::kNone ? weight : 0.0F;
  }
  if (gpu.block_x() == 0 && gpu.thread() == 0) {
    records[gpu.block_y()].fault = fault;
  }
}

/// probabilities = exp(z - max) / sum with the statistics of the records.
template <class Gpu>
SPECDEC_DEVICE void warp_with_sums(Gpu& gpu, ConstRows logits, float temperature, Rows probabilities,
                                   RowRecord* records) {
  const Range own = own_part(gpu, logits.cols);
  const float* row = logits.row(gpu.block_y());
  RowRecord& record = records[gpu.block_y()];
  const float max = record.max;
  const float sum = record.sum;
  const RowFault fault = fault_of_sums(max, sum);
  for (std::int64_t i = own.begin + gpu.thread(); i < own.end; i += gpu.threads()) {
    const float probability = elementary::exp(row[i] / temperature - max) / sum;
    probabilities.row(gpu.block_y())[i] = fault == RowFault::kNone ? probability : 0.0F;
  }
  if (gpu.block_x() == 0 && gpu.thread() == 0) {
    record.fault = fault;
  }
}

/// One block a row (x), of any number of threads. slice_sums [rows, slices], overwritten.
template <class Gpu>
SPECDEC_DEVICE void combine_sums(Gpu& gpu, SliceSum* slice_sums, std::int64_t slices, RowRecord* records) {
  if (gpu.thread() == 0) {
    const SliceSum all = combine_in_tree(slice_sums + gpu.block_x() * slices, static_cast<int>(slices));
    records[gpu.block_x()].max = all.max;
    records[gpu.block_x()].sum = all.sum;
  }
}

/// As combine_sums.
template <class Gpu>
SPECDEC_DEVICE void take_entries(Gpu& gpu, ConstRows rows, RowRecord* records) {
  if (gpu.thread() == 0) {
    RowRecord& record = records[gpu.block_x()];
    record.entry = record.asked < 0 ? 0.0F : rows.row(gpu.block_x())[record.asked];
  }
}

template <class Gpu>
SPECDEC_DEVICE void hand_on(Gpu& gpu, const RowRecord* drawn, std::int64_t count, RowRecord* asked,
                            std::int32_t* tokens) {
  for (std::int64_t i = gpu.thread(); i < count; i += gpu.threads()) {
    if (asked != nullptr) {
      asked[i].asked = drawn[i].token;
    }
    if (tokens != nullptr) {
      tokens[i] = drawn[i].token;
    }
  }
}

template <class Gpu>
SPECDEC_DEVICE void point_masses(Gpu& gpu, const RowRecord* records, Rows out) {
  const Range own = own_part(gpu, out.cols);
  const std::int32_t token = records[gpu.block_y()].asked;
  for (std::int64_t i = own.begin + gpu.thread(); i < own.end; i += gpu.threads()) {
    out.row(gpu.block_y())[i] = i == token ? 1.0F : 0.0F;
  }
}

/// left [rows, parts] = whether p exceeds q somewhere in the part.
template <class Gpu>
SPECDEC_DEVICE void find_left(Gpu& gpu, ConstRows p, ConstRows q, std::int32_t* left) {
  const Range own = own_part(gpu, p.cols);
  std::int32_t mine = 0;
  for (std::int64_t i = own.begin + gpu.thread(); i < own.end; i += gpu.threads()) {
    mine |= p.row(gpu.block_y())[i] > q.row(gpu.block_y())[i] ? 1 : 0;
  }
  const std::int32_t any = block_reduce(gpu, mine, [](std::int32_t a, std::int32_t b) { return a | b; });
  if (gpu.thread() == 0) {
    left[gpu.block_y() * parts_of(p.cols) + gpu.block_x()] = any;
  }
}

template <class Gpu>
SPECDEC_DEVICE void take_residuals(Gpu& gpu, ConstRows p, ConstRows q, const std::int32_t* left, Rows out) {
  const std::int64_t parts = parts_of(p.cols);
  std::int32_t mine = 0;
  for (std::int64_t part = gpu.thread(); part < parts; part += gpu.threads()) {
    mine |= left[gpu.block_y() * parts + part];
  }
  const std::int32_t any = block_reduce(gpu, mine, [](std::int32_t a, std::int32_t b) { return a | b; });
  const Range own = own_part(gpu, p.cols);
  for (std::int64_t i = own.begin + gpu.thread(); i < own.end; i += gpu.threads()) {
    const float of_p = p.row(gpu.block_y())[i];
    const float difference = of_p - q.row(gpu.block_y())[i];
    out.row(gpu.block_y())[i] = any == 0 ? of_p : difference < 0.0F ? 0.0F : difference;
  }
}

SPECDEC_DEVICE inline void leave_token(std::int32_t token, const float* row, RowRecord& record, std::int32_t* also) {
  record.token = token;
  record.weight = token < 0 ? 0.0F : row[token];
  if (also != nullptr) {
    *also = token;
  }
}

/// One block a row (y).
template <class Gpu>
SPECDEC_DEVICE void take_argmax(Gpu& gpu, ConstRows values, const Peak* peaks, RowRecord* records,
                                std::int32_t* tokens) {
  const Peak peak = peak_of_row(gpu, values.cols, peaks);
  if (gpu.thread() == 0) {
    leave_token(peak.index, values.row(gpu.block_y()), records[gpu.block_y()],
                tokens == nullptr ? nullptr : tokens + gpu.block_y());
  }
}

}  // namespace specdec::cuda
