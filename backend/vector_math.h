#pragma once

#include <cstdint>
#include <span>

/// Operations on one row of logits in host memory, for the sampler of rank 0. Each runs on the best instruction set of this machine
/// and gives the same bits on all of them (fixed lanes, own exp); none allocates. A NaN never wins a comparison.
namespace specdec {

/// Largest entry; -inf for none.
float max_of(std::span<const float> values);

/// Lowest index of the largest entry; 0 if all are NaN, -1 for an empty span.
std::int32_t argmax_of(std::span<const float> values);

/// out[i] = exp(logits[i] / temperature - max_z): the weights of a softmax at `temperature` > 0 relative to max_z, which is the largest
/// logit / temperature. The division is exactly rounded, so dividing is monotonic: max_z = max_of(logits) / temperature.
/// out may be logits itself.
void scaled_exp(std::span<const float> logits, float temperature, float max_z, std::span<float> out);

/// Sum in double precision: entry i is added to lane i mod 16, in index order, then the lanes are added in a fixed tree.
double sum_of(std::span<const float> values);

}  // namespace specdec
