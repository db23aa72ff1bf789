#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"

/// Memory that operations on a `Device` (gpu_backend.h) keep from call to call.
namespace specdec::cuda {

/// Memory of a device that grows to the largest that was asked for.
template <class Device>
class Scratch {
 public:
  template <typename T>
  T* take(Device& device, std::size_t count) {
    if (memory_ == nullptr || memory_->bytes() < count * sizeof(T)) {
      device.synchronize();  // kernels may still use the old one
      memory_ = device.allocate(count * sizeof(T));
    }
    return reinterpret_cast<T*>(memory_->data());
  }

 private:
  std::unique_ptr<Buffer> memory_;
};

/// A copy on the device of what a call hands to its kernels besides activations: positions, slots, ranges. Made anew when it changes, which for most is once
/// a pass and not once a layer; what was there has been read by then, since a device works in order.
template <class Device, typename T>
class Kept {
 public:
  const T* on(Device& device, std::span<const T> values) {
    T* const copy = memory_.template take<T>(device, values.size());
    if (copy != copy_ || !std::ranges::equal(values, values_)) {
      device.upload(reinterpret_cast<std::byte*>(copy), std::as_bytes(values));
      copy_ = copy;
      values_.assign(values.begin(), values.end());
    }
    return copy;
  }

 private:
  Scratch<Device> memory_;
  const T* copy_ = nullptr;
  std::vector<T> values_;
};

/// A copy of `values` in memory of its own.
template <class Device, typename T>
std::unique_ptr<Buffer> copy_on(Device& device, std::span<const T> values) {
  auto buffer = device.allocate(values.size_bytes());
  device.upload(buffer->data(), std::as_bytes(values));
  return buffer;
}

}  // namespace specdec::cuda
