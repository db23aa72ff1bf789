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

void ColumnParallelLinear::forward_gated(ConstRows x, Rows gate_up, Rows out, Stream stream) {
  backend_.matmul_silu_mul(*weight_, x, bias_ ? bias_->floats() : nullptr, gate_up, out, stream);
}

RowParallelLinear::RowParallelLinear(Backend& backend, Communicator& group, const LinearSpec& spec,
                                     std::unique_ptr<Buffer> bias)
    : backend_(backend), group_(group), weight_(backend.pack(spec)), bias_(std::move(bias)) {}

void RowParallelLinear::forward(ConstRows x, Rows y, Stream stream) {
  check(y.stride == y.cols, "RowParallelLinear: y must be contiguous, since its rows are reduced as one payload");
  if (next_ != nullptr && group_.size() > 1) {
    backend_.matmul_before(*weight_, x, y, *next_, stream);
  } else {
    backend_.matmul(*weight_, x, y, stream);
  }
  all_reduce({y.data, static_cast<std::size_t>(y.rows * y.cols)}, stream);
  if (bias_) {
    backend_.add_bias(y, bias_->floats(), stream);
  }
}

void RowParallelLinear::all_reduce(std::span<float> rows, Stream stream) {
  if (group_.on_device()) {
    group_.all_reduce(rows, backend_.stream());
    return;
  }
  if (backend_.on_host() || group_.size() == 1) {
    group_.all_reduce(rows, stream);
    return;
  }
  on_host_.resize(rows.size());
  auto* const device = reinterpret_cast<std::byte*>(rows.data());
  backend_.download(std::as_writable_bytes(std::span(on_host_)), device, stream);
  backend_.synchronize(stream);
  group_.all_reduce(on_host_, stream);
  backend_.upload(device, std::as_bytes(std::span(on_host_)), stream);
}

}  // namespace specdec
