#pragma once

#include <cstdint>
#include <string_view>

#include "backend/cpu/isa.h"

namespace specdec {

/// What a pass over `rows` rows takes over one of one row, as it was once measured of models whose weights no cache holds (docs/benchmarking.md), straight lines in between
/// and beyond. For choices that have to be the same each time and so may not look at a clock; for times there are descriptions of machines (hardware.h). An instruction set that
/// was not measured is taken for the next weaker one, the weakest for AVX2. On a GPU, and with the reference backend: 1.
double typical_rows_cost(std::string_view backend, Isa isa, std::int64_t rows);

}  // namespace specdec
