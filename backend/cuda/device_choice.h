#pragma once

#include "backend/cuda/cuda_backend.h"

namespace specdec {

/// Which of the `devices` GPUs that this process sees a rank gets, from 0: the one of its number on its host, or, with `share`, the ranks
/// take them in turn. Pure arithmetic, so that it is tested without a GPU; CUDA_VISIBLE_DEVICES has had its say in `devices`.
///
/// Throws kBadInput for no device, and for more ranks than devices that were not told to share.
int choose_device(const CudaOptions& options, int devices);

}  // namespace specdec
