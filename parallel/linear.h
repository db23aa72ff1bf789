#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "parallel/communicator.h"

/// Linear layers cut across ranks in the Megatron way (Shoeybi et al. 2019). The collective lives here and nowhere
/// above.
namespace specdec {

/// Outputs are cut: y [rows, local outputs] = x W^T + bias. No communication.
class ColumnParallelLinear {
 public:
  /// `bias` [local outputs] in backend memory, or null.
  ColumnParallelLinear(Backend& backend, const LinearSpec& spec, std::unique_ptr<Buffer> bias);
  void forward(ConstRows x, Rows y, Stream stream);
  /// out [rows, local outputs / 2] = silu(gate) * up of y, of a matrix that is `gated`; gate_up [rows, local outputs] is room for y.
  void forward_gated(ConstRows x, Rows gate_up, Rows out, Stream stream);
  std::int64_t out_features() const { return weight_->out_features(); }
  const PackedLinear& weight() const { return *weight_; }
  std::size_t bytes() const { return weight_->bytes(); }

 private:
  Backend& backend_;
  std::unique_ptr<PackedLinear> weight_;
  std::unique_ptr<Buffer> bias_;
};

/// Inputs are cut: y [rows, all outputs] = all-reduce(x_local W_local^T) + bias, the bias after the sum and never on
/// one rank's partial (docs/numerics.md, rule 3). One all-reduce of rows * outputs floats, where they lie: they go over the host and back only where
/// the backend's memory is a device's and the communicator is not on it.
class RowParallelLinear {
 public:
  /// `bias` [outputs], the same on every rank, or null.
  RowParallelLinear(Backend& backend, Communicator& group, const LinearSpec& spec, std::unique_ptr<Buffer> bias);
  /// y must be contiguous (stride == cols).
  void forward(ConstRows x, Rows y, Stream stream);
  /// What is multiplied with next: its weights may come from memory while sums travel between ranks.
  void set_next(const PackedLinear& weight) { next_ = &weight; }
  std::size_t bytes() const { return weight_->bytes(); }

 private:
  void all_reduce(std::span<float> rows, Stream stream);

  Backend& backend_;
  Communicator& group_;
  std::unique_ptr<PackedLinear> weight_;
  std::unique_ptr<Buffer> bias_;
  const PackedLinear* next_ = nullptr;
  std::vector<float> on_host_;  // what is reduced, where it has to come to the host
};

}  // namespace specdec
