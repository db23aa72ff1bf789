#include "backend/cpu/packed_linear.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "backend/cpu/parallel_for.h"
#include "backend/dtype.h"
#include "backend/error.h"

namespace specdec {
CpuPackedLinear::CpuPackedLinear(const LinearSpec& spec, Isa isa, Contents contents)
    : CpuPackedLinear(spec, matmul_kernel(isa, spec.dtype), contents) {}

CpuPackedLinear::CpuPackedLinear(const LinearSpec& spec, const MatmulKernel& kernel, Contents contents)
    : kernel_(&kernel) {
  check(spec.dtype == DType::kF32 || spec.dtype == DType::kBF16, "weights are packed as f32 or bf16");
  check(!spec.stacked.empty(), "a linear layer has at least one weight");
  check(static_cast<std::int64_t>(spec.slices.size()) <= kMaxSlices, "a linear layer has at most 64 slices");
  inputs_ = spec.stacked.front().cols;
  for (const WeightView& view : spec.stacked) {
    check(view.cols == inputs_, "stacked weights have the same number of columns");
    outputs_ += view.rows;
  }
  if (spec.dtype == DType::kBF16) {
    lay_out_slices(spec, 2, kTileSteps);
  } else {
    lay_out_slices(spec, 1, 1);
  }
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

void CpuPackedLinear::lay_out_slices(const LinearSpec& spec, std::int64_t step_inputs, std::int64_t unit_steps) {
  const std::int64_t unit = step_inputs * unit_steps;
  std::int64_t end = 0;
  for (const Range& slice : spec.slices) {
    check(slice.begin == end && slice.end >= slice.begin, "slices cover the inner dimension in order and without gaps");
    end = slice.end;
    const std::int64_t steps = (slice.size() + unit - 1) / unit * unit_steps;
    if (!slice.empty()) {
      // A run goes on as long as no slice before this one ended in padding.
      if (!runs_.empty() && runs_.back().step * step_inputs + runs_.back().count == steps_ * step_inputs) {
        runs_.back().count += slice.size();
      } else {
        runs_.push_back({slice.begin, slice.size(), steps_});
      }
    }
    slice_steps_.push_back(steps);
    steps_ += steps;
  }
  check(end == inputs_, "slices cover the whole inner dimension");
}

void CpuPackedLinear::fill(const LinearSpec& spec, ThreadPool& pool) {
  panels_ = AlignedArray(static_cast<std::size_t>(panel_count() * panel_bytes()), AlignedArray::Fill::kNone);
  std::vector<float> rows(static_cast<std::size_t>(inputs_ * pool.size()));
  parallel_for(pool, pool.size(), panel_count(), [&](int thread, std::int64_t panel) {
    fill_panel(spec, panel,
               std::span(rows).subspan(static_cast<std::size_t>(thread * inputs_), static_cast<std::size_t>(inputs_)));
  });
}

void CpuPackedLinear::fill_panel(const LinearSpec& spec, std::int64_t panel, std::span<float> row) {
  const bool bf16 = spec.dtype == DType::kBF16;
  std::byte* const at = panels_.data() + panel * panel_bytes();
  std::memset(at, 0, static_cast<std::size_t>(panel_bytes()));
  const Range outputs = {panel * kPanelOutputs, std::min((panel + 1) * kPanelOutputs, outputs_)};
  std::int64_t first = 0;  // output of the view's row 0
  for (const WeightView& view : spec.stacked) {
    for (std::int64_t output = std::max(outputs.begin, first); output < std::min(outputs.end, first + view.rows);
         ++output) {
      read_row(view, output - first, row);
      const std::int64_t lane = output - outputs.begin;
      for (const Run& run : runs_) {
        std::byte* steps = at + run.step * kStepBytes;
        for (std::int64_t i = 0; i < run.count; ++i) {
          const float value = row[static_cast<std::size_t>(run.begin + i)];
          if (bf16) {
            const std::uint16_t bits = float_to_bf16(value);
            std::memcpy(steps + i / 2 * kStepBytes + lane * 4 + i % 2 * 2, &bits, sizeof bits);
          } else {
            std::memcpy(steps + i * kStepBytes + lane * 4, &value, sizeof value);
          }
        }
      }
    }
    first += view.rows;
  }
}

}  // namespace specdec
