#include "backend/cpu/lanes_avx2.h"
#include "backend/cpu/row_ops_inl.h"
#include "backend/cpu/row_ops_tables.h"

namespace specdec {

const RowOps& row_ops_avx2() { return kRowOps<avx2::Lanes, avx2::DoubleLanes>; }

}  // namespace specdec
