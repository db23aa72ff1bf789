#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "backend/cuda/cuda_backend.h"
#include "backend/dtype.h"
#include "parallel/communicator.h"
#include "parallel/progress.h"

namespace specdec {

/// A payload in the memory of a GPU, as a benchmark sums it up; or several that are alike.
class DevicePayload {
 public:
  virtual ~DevicePayload() = default;
  virtual int count() const { return 1; }
  /// Bytes of each payload, from the host.
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// Returns when the sums over ranks are in their places, as the host sees it: seconds of one of them by the device's own clock, where that is what is
  /// timed. Collective.
  virtual std::optional<double> all_reduce() = 0;
  /// Payload `which` of count().
  virtual void read(int which, std::span<std::byte> bytes) = 0;
};

/// How the host has the work of an all-reduce done.
enum class DeviceWay : std::uint8_t {
  kCall,         ///< it calls the communicator
  kGraph,        ///< it launches a CUDA graph, captured once, of that call
  kManyInGraph,  ///< it launches a graph of many, as a pass has them, and the device times them
};

/// How many all-reduces of `bytes` are timed as one with kManyInGraph: enough that the two events around them count for nothing, but no more than 16 MB
/// of payloads, all of which are verified after each replay.
constexpr int all_reduces_in_graph(std::size_t bytes) {
  constexpr std::size_t kMost = 32;
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  return static_cast<int>(std::clamp<std::size_t>(kBytes / std::max<std::size_t>(bytes, 1), 1, kMost));
}

/// `elements` of `dtype` on the GPU of `group`, which is on the device; both must outlive the payload. Collective. In a program built without CUDA there is no
/// such group (without_cuda.cpp).
std::unique_ptr<DevicePayload> make_device_payload(Communicator& group, DType dtype, std::size_t elements,
                                                   DeviceWay way, Progress& progress);

}  // namespace specdec
