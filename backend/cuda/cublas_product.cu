#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "backend/cuda/cublas_product.h"
#include "backend/cuda/cuda_device.h"
#include "backend/error.h"

namespace specdec {
namespace {

/// What NVIDIA recommends from Hopper on; one that is set before can be captured.
constexpr std::size_t kWorkspace = std::size_t{32} * 1024 * 1024;

void cublas_check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(ErrorKind::kInternal, fmt::format("{}: {}", what, cublasGetStatusString(status)));
  }
}

}  // namespace

struct CublasProduct::Handle {
  Handle() {
    cublas_check(cublasCreate(&handle), "cublasCreate");
    cuda_check(cudaMalloc(&workspace, kWorkspace), "cudaMalloc");
  }
  ~Handle() {
    cublasDestroy(handle);
    cudaFree(workspace);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  cublasHandle_t handle = nullptr;
  void* workspace = nullptr;
};

CublasProduct::CublasProduct() : handle_(std::make_unique<Handle>()) {}
CublasProduct::~CublasProduct() = default;

void CublasProduct::multiply(void* stream, DType dtype, const std::byte* weights, const std::byte* x,
                             std::int64_t inputs, Rows y) {
  cublasHandle_t handle = handle_->handle;
  cublas_check(cublasSetStream(handle, static_cast<cudaStream_t>(stream)), "cublasSetStream");
  cublas_check(cublasSetWorkspace(handle, handle_->workspace, kWorkspace), "cublasSetWorkspace");
  const cudaDataType_t type = dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
  const float one = 1;
  const float zero = 0;
  // Columns first, as cuBLAS has it: y^T [outputs, rows] = (w^T)^T x^T.
  cublas_check(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(y.cols), static_cast<int>(y.rows),
                            static_cast<int>(inputs), &one, weights, type, static_cast<int>(inputs), x, type,
                            static_cast<int>(inputs), &zero, y.data, CUDA_R_32F, static_cast<int>(y.stride),
                            CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
               "cublasGemmEx");
}

}  // namespace specdec
