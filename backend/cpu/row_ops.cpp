#include "backend/cpu/row_ops.h"

#include "backend/cpu/row_ops_tables.h"

namespace specdec {

const RowOps& row_ops(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return row_ops_avx2();
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
    case Isa::kAmxBf16:
      return row_ops_avx512();
    case Isa::kScalar:
      break;
  }
  return row_ops_scalar();
}

}  // namespace specdec
