#include "backend/cuda/cuda_backend.h"
#include "backend/error.h"

namespace specdec {

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions&) {
  throw_bad_input(
      "backend: found \"cuda\", but this program was built without CUDA (configure with the preset cuda, docs/gpu.md)");
}

}  // namespace specdec
