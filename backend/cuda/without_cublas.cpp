#include "backend/cuda/cublas_product.h"
#include "backend/error.h"

namespace specdec {

struct CublasProduct::Handle {};

CublasProduct::CublasProduct() {
  throw_bad_input("cuda.matmul: found \"cublas\", but this program was built without cuBLAS (docs/gpu.md)");
}
CublasProduct::~CublasProduct() = default;

void CublasProduct::multiply(void*, DType, const std::byte*, const std::byte*, std::int64_t, Rows) {
  check(false, "there is no cuBLAS");
}

}  // namespace specdec
