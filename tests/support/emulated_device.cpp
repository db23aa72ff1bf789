#include "tests/support/emulated_device.h"

template class specdec::cuda::GpuBackend<specdec::EmulatedDevice>;
template class specdec::cuda::GpuRowSampler<specdec::EmulatedDevice, 32, 64>;
