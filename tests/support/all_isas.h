#pragma once

#include <algorithm>
#include <vector>

#include "backend/cpu/isa.h"

namespace specdec {

/// Every instruction set that this machine has, weakest first.
inline std::vector<Isa> all_isas() {
  std::vector<Isa> result;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmxBf16}) {
    if (isa <= detect_isa()) {
      result.push_back(isa);
    }
  }
  return result;
}

/// The strongest one of this machine whose kernels sum a slice input by input, which is the order that GPUs have in common with the CPU.
inline Isa strongest_isa_in_turn() { return std::min(detect_isa(), Isa::kAvx512Bf16); }

}  // namespace specdec
