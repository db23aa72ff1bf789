#include "backend/cpu/lanes_scalar.h"
#include "backend/cpu/row_ops_inl.h"
#include "backend/cpu/row_ops_tables.h"

namespace specdec {

const RowOps& row_ops_scalar() { return kRowOps<scalar::Lanes, scalar::DoubleLanes>; }

}  // namespace specdec
