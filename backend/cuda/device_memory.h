#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"

/// What a GpuBackend keeps on its device between calls. Recorded passes refer to such memory by address, so none is ever moved or given back before the
/// backend is.
namespace specdec::cuda {

/// Copies `values` into new memory of the device.
template <class Device, typename T>
std::unique_ptr<Buffer> copy_on(Device& device, std::span<const T> values) {
  auto buffer = device.allocate(values.size_bytes());
  device.upload(buffer->data(), std::as_bytes(values));
  return buffer;
}

/// Memory for what lives within one call. It grows to the largest that was asked for.
template <class Device>
class Scratch {
 public:
  template <typename T>
  T* take(Device& device, std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (memory_.empty() || memory_.back()->bytes() < bytes) {
      memory_.push_back(device.allocate(memory_.empty() ? bytes : std::max(bytes, 2 * memory_.back()->bytes())));
    }
    return reinterpret_cast<T*>(memory_.back()->data());
  }

 private:
  std::vector<std::unique_ptr<Buffer>> memory_;
};

/// Values that never change (which KV head a query head reads, where vocabulary slices lie), each copied to the device once.
template <class Device, typename T>
class Constants {
 public:
  const T* on(Device& device, std::span<const T> values) {
    for (const auto& [known, copy] : copies_) {
      if (std::ranges::equal(known, values)) {
        return reinterpret_cast<const T*>(copy->data());
      }
    }
    copies_.emplace_back(std::vector<T>(values.begin(), values.end()), copy_on(device, values));
    return reinterpret_cast<const T*>(copies_.back().second->data());
  }

 private:
  std::vector<std::pair<std::vector<T>, std::unique_ptr<Buffer>>> copies_;
};

}  // namespace specdec::cuda
