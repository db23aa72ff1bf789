#include "backend/cpu/lanes_avx512.h"
#include "backend/cpu/row_ops_inl.h"
#include "backend/cpu/row_ops_tables.h"

namespace specdec {

const RowOps& row_ops_avx512() { return kRowOps<avx512::Lanes, avx512::DoubleLanes>; }

}  // namespace specdec
