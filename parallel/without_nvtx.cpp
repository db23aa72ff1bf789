#include "backend/error.h"
#include "parallel/nvtx_ranges.h"

namespace specdec {

std::unique_ptr<RangeSink> make_nvtx_ranges() {
  throw_bad_input(
      "SPECDEC_NVTX: found 1, but this program was built without CUDA (configure with the preset cuda, docs/gpu.md)");
}

}  // namespace specdec
