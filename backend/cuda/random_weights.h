#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/kernels/random_kernels.h"

namespace specdec::cuda {

inline std::vector<RandomRows> random_rows(const LinearSpec& spec) {
  std::vector<RandomRows> rows;
  std::int64_t output = 0;
  for (const WeightView& view : spec.stacked) {
    rows.push_back({*view.random, output, view.row_stride, view.col_stride});
    output += view.rows;
  }
  return rows;
}

/// Makes the weights of a random layer on a `Device` (gpu_backend.h), in the layout of `view`, over zeros at `weights`.
template <class Device>
void make_random(Device& device, const LinearSpec& spec, const TensorView& view, std::byte* weights) {
  const std::vector<RandomRows> rows = random_rows(spec);
  const auto table = copy_on(device, std::span(rows));
  const RandomStack stack{reinterpret_cast<const RandomRows*>(table->data()), std::ssize(rows)};
  const Grid grid{.x = view.outputs.tiles(), .threads = kRandomThreads};
  auto* const tiles = reinterpret_cast<Weights8*>(weights);
  if (spec.dtype == DType::kF16) {
    device.template launch<&random_tiles<typename Device::Gpu, DType::kF16>>(grid, view, stack, tiles);
  } else {
    device.template launch<&random_tiles<typename Device::Gpu, DType::kBF16>>(grid, view, stack, tiles);
  }
  device.synchronize();  // it reads the table
}

template <class Device>
void make_random(Device& device, const LinearSpec& spec, const PackedView& view, std::byte* weights) {
  const std::vector<RandomRows> rows = random_rows(spec);
  const auto table = copy_on(device, std::span(rows));
  const RandomStack stack{reinterpret_cast<const RandomRows*>(table->data()), std::ssize(rows)};
  device.template launch<&random_panels<typename Device::Gpu>>(
      {.x = (view.outputs + kPanelOutputs - 1) / kPanelOutputs, .threads = kRandomThreads}, view, stack, weights);
  device.synchronize();
}

/// The rows of a random matrix in bf16, which they are rounded to, side by side.
template <class Device>
std::unique_ptr<Buffer> random_table_on(Device& device, const WeightView& weight) {
  auto table = device.allocate(static_cast<std::size_t>(weight.rows * weight.cols) * sizeof(std::uint16_t));
  device.template launch<&random_table<typename Device::Gpu>>(
      {.x = weight.rows, .threads = kRandomThreads},
      RandomRows{*weight.random, 0, weight.row_stride, weight.col_stride}, weight.cols,
      reinterpret_cast<std::uint16_t*>(table->data()));
  return table;
}

}  // namespace specdec::cuda
