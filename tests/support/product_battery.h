#pragma once

#include "backend/backend.h"

/// What the products of every GpuBackend must do: on an emulated GPU in the unit tests, on a real one in tests/gpu.
namespace specdec::battery {

/// The CPU backend's bits: for CudaProducts::kCpuOrder and a CPU that fuses multiply-adds; fp32 weights in any case.
void expect_products_of_the_cpu(Backend& gpu, DType dtype);
/// Products within a bound, and each row's bits its own.
void expect_products(Backend& gpu, DType dtype);
/// Products within a bound: for CudaProducts whose rows' bits are not their own.
void expect_near_products(Backend& gpu, DType dtype);
/// As expect_products, of so many outputs that an emulated GPU would take minutes.
void expect_wide_products(Backend& gpu, DType dtype);
/// matmul_silu_mul has the bits of the operations that it stands for, and with `at_once` leaves the memory between them alone.
void expect_gated_products(Backend& gpu, DType dtype, bool at_once);
/// The sums of 2, 4 and 8 ranks, added in the canonical tree, are those of one, bit for bit.
void expect_ranks_add_up(Backend& gpu);

}  // namespace specdec::battery
