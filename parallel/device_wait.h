#pragma once

#include "backend/backend.h"
#include "parallel/communicator.h"
#include "parallel/progress.h"

namespace specdec {

/// Makes a hang of the device a hang like any other: while the host waits for it this rank counts as waiting, so that the watchdog's deadline runs, and
/// what the transport knows of lost ranks is asked for.
class DeviceWait final : public WaitObserver {
 public:
  /// `group`: whose collectives the device may wait in. Both must outlive this object.
  DeviceWait(Progress& progress, Communicator& group) : progress_(progress), group_(group) {}

  void begin_wait() override { progress_.begin_device_wait(); }
  void poll() override { group_.poll(); }
  void end_wait() override { progress_.end_device_wait(); }

 private:
  Progress& progress_;
  Communicator& group_;
};

}  // namespace specdec
