#include "parallel/linear.h"

#include <utility>

#include "backend/error.h"

namespace specdec {

ColumnParallelLinear::ColumnParallelLinear(Backend& backend, const LinearSpec& spec, std::unique_ptr<Buffer> bias)
    : backend_(backend), weight_(backend.pack(spec)), bias_(std::move(bias)) {}

void ColumnParallelLinear::forward(ConstRows x, Rows y, Stream stream) {
  backend_.matmul(*weight_, x, y, stream);
  if (bias_) {
    backend_.add_bias(y, bias_->floats(), stream);
  }
}

RowParallelLinear::RowParallelLinear(Backend& backend, Communicator& group, const LinearSpec& spec,
                                     std::unique_ptr<Buffer> bias)
    : backend_(backend), group_(group), weight_(backend.pack(spec)), bias_(std::move(bias)) {}

void RowParallelLinear::forward(ConstRows x, Rows y, Stream stream) {
  check(y.stride == y.cols, "RowParallelLinear: y must be contiguous, since its rows are reduced as one payload");
  backend_.matmul(*weight_, x, y, stream);
  group_.all_reduce({y.data, static_cast<std::size_t>(y.rows * y.cols)}, stream);
  if (bias_) {
    backend_.add_bias(y, bias_->floats(), stream);
  }
}

}  // namespace specdec
