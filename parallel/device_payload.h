#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "backend/cuda/cuda_backend.h"
#include "backend/dtype.h"
#include "parallel/communicator.h"
#include "parallel/progress.h"

namespace specdec {

/// A payload in the memory of a GPU, as a benchmark sums it up.
class DevicePayload {
 public:
  virtual ~DevicePayload() = default;
  /// Bytes of the payload, from the host.
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// Returns when the sum over ranks is in its place, as the host sees it. Collective.
  virtual void all_reduce() = 0;
  virtual void read(std::span<std::byte> bytes) = 0;
};

/// How the host has the work of an all-reduce done.
enum class DeviceWay : std::uint8_t {
  kCall,   ///< it calls the communicator
  kGraph,  ///< it launches a CUDA graph, captured once, of that call
};

/// `elements` of `dtype` on the GPU of `group`, which is on the device; both must outlive the payload. Collective. In a program built without CUDA there is no
/// such group (without_cuda.cpp).
std::unique_ptr<DevicePayload> make_device_payload(Communicator& group, DType dtype, std::size_t elements,
                                                   DeviceWay way, Progress& progress);

}  // namespace specdec
