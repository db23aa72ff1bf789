#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/kernels/tensor_shape.h"
#include "backend/cuda/tensor_layout.h"

namespace specdec::cuda {

/// What launches of tensor_matmul know of an order of additions, on the device.
template <class Device>
class TensorTables {
 public:
  /// `warps`: of the blocks that are launched.
  TensorTables(Device& device, const TensorOrder& order, int warps)
      : steps_(copy_on(device, std::span(order.steps()))), count_(std::ssize(order.steps())), cut_(order.cut(warps)) {
    leaves_ = copy_on(device, std::span<const Leaf>(cut_.leaves));
  }

  TensorView view(const std::byte* weights, const TileOutputs& outputs) const {
    TensorView view{.weights = reinterpret_cast<const Weights8*>(weights),
                    .step = reinterpret_cast<const Step*>(steps_->data()),
                    .leaf = reinterpret_cast<const Leaf*>(leaves_->data()),
                    .steps = count_,
                    .outputs = outputs,
                    .parts = static_cast<std::int32_t>(cut_.parts.size()),
                    .stack = cut_.stack};
    std::ranges::copy(cut_.parts, view.part);
    return view;
  }

 private:
  std::unique_ptr<Buffer> steps_;
  std::int64_t count_;
  TensorCut cut_;
  std::unique_ptr<Buffer> leaves_;
};

}  // namespace specdec::cuda
