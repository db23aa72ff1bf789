#pragma once

#include <memory>

#include "parallel/tracer.h"

namespace specdec {

/// A trace's spans as NVTX ranges of the domain "specdec", for Nsight Systems and whatever else listens; where nothing does, an open and a
/// close are two branches. For whom SPECDEC_NVTX=1 asks. Throws kBadInput in a program that was built without CUDA (without_nvtx.cpp).
std::unique_ptr<RangeSink> make_nvtx_ranges();

}  // namespace specdec
