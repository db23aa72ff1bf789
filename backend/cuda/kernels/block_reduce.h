#pragma once

#include "backend/cuda/kernels/device.h"

namespace specdec::cuda {

/// The values of all threads of a block, a power of two of them, merged in a fixed tree; every thread gets the result. The block's memory holds a T for
/// each thread meanwhile.
template <class Gpu, typename T, class Merge>
SPECDEC_DEVICE T block_reduce(Gpu& gpu, const T& mine, const Merge& merge) {
  auto* const all = reinterpret_cast<T*>(gpu.shared());
  all[gpu.thread()] = mine;
  gpu.sync();
  for (int half = gpu.threads() / 2; half > 0; half /= 2) {
    if (gpu.thread() < half) {
      all[gpu.thread()] = merge(all[gpu.thread()], all[gpu.thread() + half]);
    }
    gpu.sync();
  }
  const T result = all[0];
  gpu.sync();
  return result;
}

}  // namespace specdec::cuda
