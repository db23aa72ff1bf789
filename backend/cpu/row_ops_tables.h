#pragma once

#include "backend/cpu/row_ops.h"

/// One table per instruction set, each from a source file compiled for that set alone (backend/CMakeLists.txt).
namespace specdec {

const RowOps& row_ops_scalar();
const RowOps& row_ops_avx2();
const RowOps& row_ops_avx512();

}  // namespace specdec
