#pragma once

#include <vector>

#include "backend/row_sampler.h"

namespace specdec {

/// Rows in the host's memory: the functions of backend/sampler.h, row by row.
class HostRowSampler final : public RowSampler {
 public:
  /// `backend` says what the statistics of slices are.
  HostRowSampler(Backend& backend, const SamplingParams& params) : backend_(backend), sampler_(params) {}

  void warp(ConstRows logits, Rows probabilities, RowRecord* records, Stream stream) override;
  void sums(ConstRows logits, std::span<const Range> slices, RowRecord* records, Stream stream) override;
  void warp_with_sums(ConstRows logits, Rows probabilities, RowRecord* records, Stream stream) override;
  void hand_on(std::span<const RowRecord> drawn, RowRecord* asked, std::int32_t* tokens, Stream stream) override;
  void entries(ConstRows rows, RowRecord* records, Stream stream) override;
  void point_masses(const RowRecord* records, Rows out, Stream stream) override;
  void residuals(ConstRows p, ConstRows q, Rows out, Stream stream) override;
  void draw(ConstRows weights, RowRecord* records, std::int32_t* tokens, Stream stream) override;
  void argmax(ConstRows values, RowRecord* records, std::int32_t* tokens, Stream stream) override;

 private:
  Backend& backend_;
  Sampler sampler_;
  std::vector<SliceSum> slice_sums_;
};

}  // namespace specdec
