#include "backend/cpu/packed_linear.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "backend/cpu/parallel_for.h"
#include "backend/dtype.h"
#include "backend/error.h"
#include "backend/int8.h"

namespace specdec {
namespace {

static_assert(kInt8Group == kInt8GroupSteps * kInt8StepInputs);

/// Inputs of a run at most; whole groups and tiles.
constexpr std::int64_t kRunInputs = 512;
static_assert(kRunInputs % kInt8Group == 0 && kRunInputs % (2 * kTileSteps) == 0);

std::int64_t step_inputs(DType dtype) {
  return dtype == DType::kInt8 ? kInt8StepInputs : dtype == DType::kBF16 ? 2 : 1;
}

}  // namespace

CpuPackedLinear::CpuPackedLinear(const LinearSpec& spec, Isa isa, Contents contents)
    : CpuPackedLinear(spec, matmul_kernel(isa, spec.dtype), contents) {}

CpuPackedLinear::CpuPackedLinear(const LinearSpec& spec, const MatmulKernel& kernel, Contents contents)
    : kernel_(&kernel) {
  check(spec.dtype != DType::kF16, "weights are packed as f32, bf16 or int8");
  check(!spec.stacked.empty(), "a linear layer has at least one weight");
  check(static_cast<std::int64_t>(spec.slices.size()) <= kMaxSlices, "a linear layer has at most 64 slices");
  inputs_ = spec.stacked.front().cols;
  for (const WeightView& view : spec.stacked) {
    check(view.cols == inputs_, "stacked weights have the same number of columns");
    outputs_ += view.rows;
  }
  if (spec.gated && outputs_ % (2 * kPanelOutputs) == 0) gate_panels_ = panel_count() / 2;
  const auto fills_panels = [](const WeightView& view) { return view.rows > 0 && view.rows % kPanelOutputs == 0; };
  if (!spec.gated && spec.stacked.size() > 1 && std::ranges::all_of(spec.stacked, fills_panels)) {
    std::ranges::transform(spec.stacked, std::back_inserter(stacked_panels_),
                           [](const WeightView& view) { return view.rows / kPanelOutputs; });
  }
  lay_out_slices(spec);
  if (contents == Contents::kPacked) {
    ThreadPool alone(1);
    fill(spec, alone);
  }
}

CpuPackedLinear::CpuPackedLinear(const LinearSpec& spec, Isa isa, ThreadPool& pool, PackedCache* cache)
    : CpuPackedLinear(spec, isa, Contents::kNone) {
  std::optional<PackedKey> key;
  if (cache != nullptr) {
    const auto bytes = static_cast<std::size_t>(panel_bytes());
    key = PackedKey::of(spec, kPanelLayoutVersion, static_cast<std::size_t>(panel_count()) * bytes, bytes);
  }
  if (std::optional<AlignedArray> kept = key ? cache->load(*key, pool) : std::nullopt) {
    panels_ = std::move(*kept);
    return;
  }
  fill(spec, pool);
  if (key) {
    cache->store(*key, panels_);
  }
}

void CpuPackedLinear::lay_out_slices(const LinearSpec& spec) {
  const bool grouped = spec.dtype == DType::kInt8;
  const std::int64_t of_step = step_inputs(spec.dtype);
  // What a slice is filled up to with zeros, and what it is cut into.
  const std::int64_t filled = spec.dtype == DType::kBF16 ? kTileSteps * of_step : of_step;
  const std::int64_t unit = grouped ? kInt8Group : filled;
  std::int64_t end = 0;
  for (const Range& slice : spec.slices) {
    check(slice.begin == end && slice.end >= slice.begin, "slices cover the inner dimension in order and without gaps");
    end = slice.end;
    const std::int64_t steps = (slice.size() + filled - 1) / filled * (filled / of_step);
    for (std::int64_t begin = slice.begin; begin < slice.end;) {
      // A run goes on as long as it is not long enough, and no slice before this one ended in zeros or within a group.
      if (runs_.empty() || runs_.back().count % unit != 0 || runs_.back().count >= kRunInputs) {
        const std::int64_t before = begin - slice.begin;
        runs_.push_back({begin, 0, steps_ + before / of_step, groups_ + (grouped ? before / kInt8Group : 0)});
      }
      const std::int64_t count = std::min(slice.end - begin, kRunInputs - runs_.back().count);
      runs_.back().count += count;
      begin += count;
    }
    slice_steps_.push_back(steps);
    steps_ += steps;
    groups_ += grouped ? (slice.size() + kInt8Group - 1) / kInt8Group : 0;
  }
  check(end == inputs_, "slices cover the whole inner dimension");
}

void CpuPackedLinear::fill(const LinearSpec& spec, ThreadPool& pool) {
  panels_ = AlignedArray(static_cast<std::size_t>(panel_count() * panel_bytes()), AlignedArray::Fill::kNone);
  std::vector<float> rows(static_cast<std::size_t>(inputs_ * pool.size()));
  const auto fill_by = [&](int thread, std::int64_t panel) {
    fill_panel(spec, panel,
               std::span(rows).subspan(static_cast<std::size_t>(thread * inputs_), static_cast<std::size_t>(inputs_)));
  };
  if (gate_panels_ == 0) {
    parallel_for(pool, pool.size(), panel_count(), fill_by);
    return;
  }
  parallel_for(pool, pool.size(), gate_panels_, [&](int thread, std::int64_t panel) {
    fill_by(thread, panel);
    fill_by(thread, gate_panels_ + panel);
  });
}

void CpuPackedLinear::fill_panel(const LinearSpec& spec, std::int64_t panel, std::span<float> row) {
  std::byte* const at = panels_.data() + panel * panel_bytes();
  std::memset(at, 0, static_cast<std::size_t>(panel_bytes()));
  const Range outputs = {panel * kPanelOutputs, std::min((panel + 1) * kPanelOutputs, outputs_)};
  std::int64_t first = 0;  // output of the view's row 0
  for (const WeightView& view : spec.stacked) {
    for (std::int64_t output = std::max(outputs.begin, first); output < std::min(outputs.end, first + view.rows);
         ++output) {
      read_row(view, output - first, row);
      fill_output(spec.dtype, row, at, output - outputs.begin);
    }
    first += view.rows;
  }
}

void CpuPackedLinear::fill_output(DType dtype, std::span<const float> row, std::byte* panel, std::int64_t lane) const {
  for (const Run& run : runs_) {
    std::byte* const steps = panel + (run.step + run.group) * kStepBytes;
    if (dtype == DType::kInt8) {
      for (std::int64_t i = 0; i < run.count; i += kInt8Group) {
        // Before the group are i / kInt8Group whole ones with their scales.
        fill_group(row.subspan(static_cast<std::size_t>(run.begin + i),
                               static_cast<std::size_t>(std::min(kInt8Group, run.count - i))),
                   steps + i / kInt8Group * (kInt8GroupSteps + 1) * kStepBytes, lane);
      }
      continue;
    }
    for (std::int64_t i = 0; i < run.count; ++i) {
      const float value = row[static_cast<std::size_t>(run.begin + i)];
      if (dtype == DType::kBF16) {
        const std::uint16_t bits = float_to_bf16(value);
        std::memcpy(steps + i / 2 * kStepBytes + lane * 4 + i % 2 * 2, &bits, sizeof bits);
      } else {
        std::memcpy(steps + i * kStepBytes + lane * 4, &value, sizeof value);
      }
    }
  }
}

void CpuPackedLinear::fill_group(std::span<const float> values, std::byte* steps, std::int64_t lane) {
  std::int8_t integers[kInt8Group] = {};
  const float scale = quantise_group(values, integers);
  const std::int64_t count = (static_cast<std::int64_t>(values.size()) + kInt8StepInputs - 1) / kInt8StepInputs;
  for (std::int64_t step = 0; step < count; ++step) {
    std::memcpy(steps + step * kStepBytes + lane * kInt8StepInputs, integers + step * kInt8StepInputs, kInt8StepInputs);
  }
  std::memcpy(steps + count * kStepBytes + lane * sizeof scale, &scale, sizeof scale);
}

}  // namespace specdec
