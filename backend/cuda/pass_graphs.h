#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "backend/backend.h"
#include "backend/cuda/chain_on_device.h"

namespace specdec::cuda {

/// What the launches of a pass depend on, apart from the model: passes with equal keys are the same launches with the same arguments, and all else that
/// differs between them is read from the device's memory.
struct PassKey {
  int variant = 0;
  std::int64_t rows = 0;
  bool in_order = true;
  std::uint64_t kv = 0;         ///< Kv::serial: another store may come to lie at the same address
  std::int64_t key_blocks = 0;  ///< that attention's grid covers
  const void* chain = nullptr;  ///< where the rows are described

  auto operator<=>(const PassKey&) const = default;
};

/// Records passes as graphs of a `Device` (gpu_backend.h). A pass that comes for the first time is done launch by launch, so that everything it needs has been
/// allocated and loaded; the second time it is recorded, and from then on replayed.
template <class Device>
class PassGraphs final : public PassRecorder {
 public:
  /// `key_of(variant, chain, kv)` names a pass whose rows `chain_on_device` has.
  using KeyOf = std::function<PassKey(int variant, const RowChain& chain, const KvStore& kv)>;
  PassGraphs(Device& device, KeyOf key_of) : device_(device), key_of_(std::move(key_of)) {}

  void run(int variant, const RowChain& chain, const KvStore& kv, const std::function<void()>& operations) override {
    const auto [entry, is_new] = graphs_.try_emplace(key_of_(variant, chain, kv));
    if (is_new) {
      operations();
      return;
    }
    std::optional<typename Device::Recording>& graph = entry->second;
    if (!graph) {
      graph = device_.record(operations);
    }
    device_.replay(*graph);
  }

 private:
  Device& device_;
  KeyOf key_of_;
  std::map<PassKey, std::optional<typename Device::Recording>> graphs_;
};

}  // namespace specdec::cuda
