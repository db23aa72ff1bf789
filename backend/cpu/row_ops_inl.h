#pragma once

#include <cstdint>

#include "backend/cpu/attention_inl.h"
#include "backend/cpu/elementwise_inl.h"
#include "backend/cpu/logits_inl.h"
#include "backend/cpu/norm_inl.h"
#include "backend/cpu/row_ops.h"

namespace specdec {

template <typename V, typename D>
inline constexpr RowOps kRowOps{
    .rms_norm = rms_norm_row<V>,
    .layer_norm = layer_norm_row<V>,
    .rope = rope_row<V>,
    .silu_mul = silu_mul_row<V>,
    .gelu_tanh = gelu_tanh_row<V>,
    .add = add_row<V>,
    .max = max_row<V>,
    .find = find_row<V>,
    .sum = sum_row<V, D>,
    .scaled_exp = scaled_exp_row<V>,
    .sum_scaled_exp = sum_scaled_exp_row<V, D>,
    .attention_begin = attention_begin<V>,
    .attention_block = attention_block<V>,
    .attention_end = attention_end<V>,
};

}  // namespace specdec
