#include "backend/vector_math.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/row_ops.h"
#include "backend/error.h"

namespace specdec {

namespace {

const RowOps& best_ops() {
  static const RowOps& ops = row_ops(detect_isa());
  return ops;
}

std::int64_t count_of(std::span<const float> values) { return static_cast<std::int64_t>(values.size()); }

}  // namespace

float max_of(std::span<const float> values) { return best_ops().max(values.data(), count_of(values)); }

std::int32_t argmax_of(std::span<const float> values) {
  if (values.empty()) {
    return -1;
  }
  const std::int64_t index = best_ops().find(values.data(), count_of(values), max_of(values));
  return index < count_of(values) ? static_cast<std::int32_t>(index) : 0;
}

void scaled_exp(std::span<const float> logits, float temperature, float max_z, std::span<float> out) {
  check(logits.size() == out.size(), "scaled_exp: as many results as logits");
  best_ops().scaled_exp(logits.data(), temperature, max_z, out.data(), count_of(logits));
}

double sum_of(std::span<const float> values) { return best_ops().sum(values.data(), count_of(values)); }

}  // namespace specdec
