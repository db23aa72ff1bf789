#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/aligned_array.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/matmul_kernel.h"
#include "backend/cpu/packed_cache.h"
#include "backend/cpu/thread_pool.h"

namespace specdec {

/// Of the layout below, for files that keep such bytes: raised with every change of what is packed where.
inline constexpr int kPanelLayoutVersion = 3;

/// A weight matrix cut into panels of 16 outputs, the same bytes for every instruction set.
///
/// A panel is a run of steps of 64 bytes, which the kernels read front to back: one input of 16 outputs, [16] f32, or
/// two neighbouring inputs of 16 outputs, [16][2] bf16, as VDPBF16PS takes them, or four, [16][4] int8, as VPDPBUSD and
/// TDPBSSD do. Slices follow one another. A bf16 slice ends in zeros that make its inputs a multiple of 32 (kTileSteps steps):
/// 16 steps, one after another in memory, are then one tile of TDPBF16PS, [16 pairs of inputs][16 outputs][2] bf16, and no tile
/// belongs to two slices. What these zeros add is exact: +0 to a sum that began as +0 (docs/numerics.md, rule 6). Of int8, the
/// steps of each group (backend/int8.h: 32 steps, the last of a slice fewer, its last step filled up with zeros) are followed by one
/// more, its scales, [16] f32. The last panel ends in outputs that are zero. So every slice and panel runs the same code. An
/// empty slice has no steps.
class CpuPackedLinear final : public PackedLinear {
 public:
  /// Part of a row of x that stays contiguous when rows are packed: inputs [begin, begin + count) go to step `step` on, the steps of scales not
  /// counted; `group` groups are before them. Short enough that threads can share the runs of a row.
  struct Run {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t step = 0;
    std::int64_t group = 0;
  };

  /// With Contents::kNone there are no panels, only where they would be.
  CpuPackedLinear(const LinearSpec& spec, Isa isa, Contents contents = Contents::kPacked);
  /// Packed by all threads of `pool`, the same bytes. Of a large matrix a thread packs what it will multiply with, so that this lies near its core.
  /// Or taken from `cache`, where that has them.
  CpuPackedLinear(const LinearSpec& spec, Isa isa, ThreadPool& pool, PackedCache* cache = nullptr);
  /// With a kernel of the caller's choice: one for spec.dtype that this CPU has.
  CpuPackedLinear(const LinearSpec& spec, const MatmulKernel& kernel, Contents contents = Contents::kPacked);

  std::int64_t out_features() const override { return outputs_; }
  std::int64_t in_features() const override { return inputs_; }
  std::size_t bytes() const override { return panels_.bytes(); }

  const MatmulKernel& kernel() const { return *kernel_; }
  const std::byte* panels() const { return panels_.data(); }
  std::int64_t panel_count() const { return (outputs_ + kPanelOutputs - 1) / kPanelOutputs; }
  /// Panels of gates, followed by as many of what they gate; 0 where the weights are not gated, or a panel has outputs of both.
  std::int64_t gate_panels() const { return gate_panels_; }
  /// Of each of several matrices that are stacked, their panels; empty where there is one alone, where they are gated, or where a panel has outputs of two.
  std::span<const std::int64_t> stacked_panels() const { return stacked_panels_; }
  /// Panels [begin, end).
  PanelRun run_of_panels(std::int64_t begin, std::int64_t end) const {
    return {panels() + begin * panel_bytes(), panel_bytes(), end - begin};
  }
  std::int64_t panel_bytes() const { return (steps_ + groups_) * kStepBytes; }
  /// Steps of a whole panel, all slices, those of scales not counted.
  std::int64_t steps() const { return steps_; }
  /// Groups of int8 of a whole panel, and so its steps of scales; 0 of other types.
  std::int64_t groups() const { return groups_; }
  std::span<const std::int64_t> slice_steps() const { return slice_steps_; }
  std::span<const Run> runs() const { return runs_; }

 private:
  void lay_out_slices(const LinearSpec& spec);
  void fill(const LinearSpec& spec, ThreadPool& pool);
  void fill_panel(const LinearSpec& spec, std::int64_t panel, std::span<float> row);
  void fill_output(DType dtype, std::span<const float> row, std::byte* panel, std::int64_t lane) const;
  /// Of int8: a group at `steps`.
  static void fill_group(std::span<const float> values, std::byte* steps, std::int64_t lane);

  const MatmulKernel* kernel_;
  std::int64_t outputs_ = 0;
  std::int64_t inputs_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t groups_ = 0;
  std::int64_t gate_panels_ = 0;
  std::vector<std::int64_t> stacked_panels_;
  std::vector<std::int64_t> slice_steps_;
  std::vector<Run> runs_;
  AlignedArray panels_;
};

}  // namespace specdec
