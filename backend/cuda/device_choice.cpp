#include "backend/cuda/device_choice.h"

#include <fmt/format.h>

#include "backend/error.h"

namespace specdec {

int choose_device(const CudaOptions& options, int devices) {
  check(options.local_rank >= 0 && options.local_rank < options.local_ranks, "a rank is one of those of its host");
  if (devices < 1) {
    throw_bad_input("backend: found \"cuda\" where no GPU is visible, expected at least one");
  }
  if (options.local_ranks > devices && !options.share) {
    throw_bad_input(
        fmt::format("backend: found \"cuda\" with {} ranks on a host and {} GPU{}, expected at most one rank a GPU, or "
                    "parallel.share_gpus=true",
                    options.local_ranks, devices, devices == 1 ? "" : "s"));
  }
  return options.local_rank % devices;
}

}  // namespace specdec
