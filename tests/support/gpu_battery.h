#pragma once

#include "backend/backend.h"

/// What every GpuBackend must do, against the CPU backend: on an emulated GPU in the unit tests, on a real one in tests/gpu.
namespace specdec::battery {

/// Bit for bit.
void expect_norms_of_the_cpu(Backend& gpu);
void expect_norms_in_place(Backend& gpu);
void expect_norms_of_sums(Backend& gpu);
void expect_elementwise_of_the_cpu(Backend& gpu);
void expect_rotations_of_the_cpu(Backend& gpu);
void expect_attention_of_the_cpu(Backend& gpu);
void expect_moved_slots(Backend& gpu);
void expect_statistics_of_the_cpu(Backend& gpu);
/// For a backend with `cpu_order` and a CPU that fuses multiply-adds; fp32 weights in any case.
void expect_products_of_the_cpu(Backend& gpu, DType dtype);

/// Products within a bound, each row by itself bit for bit.
void expect_products(Backend& gpu);
/// The sums of 2, 4 and 8 ranks, added in the canonical tree, are those of one, bit for bit.
void expect_ranks_add_up(Backend& gpu);

}  // namespace specdec::battery
