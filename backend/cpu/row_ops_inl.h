#pragma once

#include <cstdint>

#include "backend/cpu/attention_inl.h"
#include "backend/cpu/elementwise_inl.h"
#include "backend/cpu/logits_inl.h"
#include "backend/cpu/norm_inl.h"
#include "backend/cpu/row_ops.h"

namespace specdec {

template <typename V, Keep kKeep>
inline constexpr ResultOps kResultOps{
    .rms_norm = rms_norm_row<V, kKeep>,
    .layer_norm = layer_norm_row<V, kKeep>,
    .silu_mul = silu_mul_rows<V, kKeep>,
    .attention_end = attention_end<V, kKeep>,
};

template <typename V, typename D>
inline constexpr RowOps kRowOps{
    .kept = kResultOps<V, Keep::kInCaches>,
    .for_others = kResultOps<V, Keep::kInMemory>,
    .rope = rope_row<V>,
    .gelu_tanh = gelu_tanh_row<V>,
    .add = add_row<V>,
    .max = max_row<V>,
    .find = find_row<V>,
    .sum = sum_row<V, D>,
    .scaled_exp = scaled_exp_row<V>,
    .sum_scaled_exp = sum_scaled_exp_row<V, D>,
    .attention_begin = attention_begin<V>,
    .attention_block = attention_block<V>,
};

}  // namespace specdec
