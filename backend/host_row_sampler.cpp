#include "backend/host_row_sampler.h"

#include <algorithm>
#include <memory>

#include "backend/error.h"
#include "backend/slice_sums.h"

namespace specdec {
namespace {

template <typename T>
std::span<T> row_of(const BasicRows<T>& rows, std::int64_t r) {
  return {rows.row(r), static_cast<std::size_t>(rows.cols)};
}

void check_alike(ConstRows a, ConstRows b) {
  check(a.rows == b.rows && a.cols == b.cols, "rows that belong together have one shape");
}

void leave(std::int32_t token, ConstRows rows, std::int64_t r, RowRecord* records, std::int32_t* tokens) {
  records[r].token = token;
  records[r].weight = token < 0 ? 0.0F : rows.row(r)[token];
  if (tokens != nullptr) {
    tokens[r] = token;
  }
}

}  // namespace

std::unique_ptr<RowSampler> Backend::make_row_sampler(const SamplingParams& params) {
  return std::make_unique<HostRowSampler>(*this, params);
}

void require_sound(const RowRecord& record) { throw_fault(record.fault, record.max, record.sum); }

void HostRowSampler::warp(ConstRows logits, Rows probabilities, RowRecord* records, Stream /*stream*/) {
  check_alike(logits, probabilities);
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    records[r].fault = sampler_.try_warp(row_of(logits, r), row_of(probabilities, r));
  }
}

void HostRowSampler::sums(ConstRows logits, std::span<const Range> slices, RowRecord* records, Stream stream) {
  slice_sums_.resize(static_cast<std::size_t>(logits.rows) * slices.size());
  backend_.slice_sum(logits, sampler_.params().temperature, slices, slice_sums_, stream);
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    const SliceSum all = combine_in_tree(slice_sums_.data() + r * std::ssize(slices), static_cast<int>(slices.size()));
    records[r].max = all.max;
    records[r].sum = all.sum;
  }
}

void HostRowSampler::warp_with_sums(ConstRows logits, Rows probabilities, RowRecord* records, Stream /*stream*/) {
  check_alike(logits, probabilities);
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    RowRecord& record = records[r];
    record.fault = fault_of_sums(record.max, record.sum);
    if (record.fault == RowFault::kNone) {
      probabilities_from_sums(row_of(logits, r), sampler_.params().temperature, record.max, record.sum,
                              row_of(probabilities, r));
    } else {
      std::ranges::fill(row_of(probabilities, r), 0.0F);
    }
  }
}

void HostRowSampler::hand_on(std::span<const RowRecord> drawn, RowRecord* asked, std::int32_t* tokens,
                             Stream /*stream*/) {
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    if (asked != nullptr) {
      asked[i].asked = drawn[i].token;
    }
    if (tokens != nullptr) {
      tokens[i] = drawn[i].token;
    }
  }
}

void HostRowSampler::entries(ConstRows rows, RowRecord* records, Stream /*stream*/) {
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    const std::int32_t asked = records[r].asked;
    records[r].entry = asked < 0 ? 0.0F : rows.row(r)[asked];
  }
}

void HostRowSampler::point_masses(const RowRecord* records, Rows out, Stream /*stream*/) {
  for (std::int64_t r = 0; r < out.rows; ++r) {
    std::ranges::fill(row_of(out, r), 0.0F);
    out.row(r)[records[r].asked] = 1.0F;
  }
}

void HostRowSampler::residuals(ConstRows p, ConstRows q, Rows out, Stream /*stream*/) {
  check_alike(p, q);
  check_alike(p, out);
  for (std::int64_t r = 0; r < p.rows; ++r) {
    residual(row_of(p, r), row_of(q, r), row_of(out, r));
  }
}

void HostRowSampler::draw(ConstRows weights, RowRecord* records, std::int32_t* tokens, Stream /*stream*/) {
  for (std::int64_t r = 0; r < weights.rows; ++r) {
    leave(find_drawn(row_of(weights, r), records[r].uniform), weights, r, records, tokens);
  }
}

void HostRowSampler::argmax(ConstRows values, RowRecord* records, std::int32_t* tokens, Stream /*stream*/) {
  for (std::int64_t r = 0; r < values.rows; ++r) {
    leave(specdec::argmax(row_of(values, r)), values, r, records, tokens);
  }
}

}  // namespace specdec
