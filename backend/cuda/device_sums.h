#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/kernels/peer_sum_kernel.h"
#include "backend/dtype.h"

/// The kernels of a communicator on a device, for callers that nvcc does not compile. Of builds for GPUs alone.
namespace specdec::cuda {

/// out [count] = the tree over ranks of gathered [ranks, count], enqueued on `stream`, a stream of the current device.
void sum_gathered(const float* gathered, int ranks, std::int64_t count, float* out, Stream stream);
void sum_gathered(const BF16* gathered, int ranks, std::int64_t count, BF16* out, Stream stream);

/// data [count] = sum over `peers` (kernels/peer_sum_kernel.h), enqueued likewise.
void sum_over_peers(const Peers& peers, float* data, std::int64_t count, Stream stream);
void sum_over_peers(const Peers& peers, BF16* data, std::int64_t count, Stream stream);

}  // namespace specdec::cuda
