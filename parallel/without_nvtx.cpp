#include "backend/error.h"
#include "parallel/nvtx_ranges.h"

namespace specdec {

std::unique_ptr<RangeSink> make_nvtx_ranges() {
  throw_bad_input("NVTX: found a program that was built without CUDA, expected one of the preset cuda (docs/gpu.md)");
}

}  // namespace specdec
