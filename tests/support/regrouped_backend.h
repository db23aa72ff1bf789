#pragma once

#include "backend/forwarding_backend.h"

namespace specdec::tests {

/// One rank that adds up the canonical slices as `ranks` ranks do: those of each rank in a tree of their own, then the ranks' sums in the
/// tree of the all-reduce. What it computes is what any transport must give over that many ranks, in every bit, also where the
/// ranks' slices are no whole subtrees (3, 5, 6, 7, 9 ... ranks).
///
/// It takes the 16 slices of one rank as they are given; who owns which of them and both trees are written down here anew.
class RegroupedBackend final : public ForwardingBackend {
 public:
  RegroupedBackend(std::unique_ptr<Backend> inner, int ranks) : ForwardingBackend(std::move(inner)), ranks_(ranks) {}

  std::unique_ptr<PackedLinear> pack(const LinearSpec& spec) override;
  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream stream) override;

 private:
  int ranks_;
};

/// The columns `columns` of a matrix, with slices `slices` of them (relative to columns.begin).
LinearSpec columns_of(const LinearSpec& spec, Range columns, std::vector<Range> slices);

}  // namespace specdec::tests
