#pragma once

#include "backend/backend.h"

/// What every GpuBackend must do, against the CPU backend: on an emulated GPU in the unit tests, on a real one in tests/gpu.
namespace specdec::battery {

/// Bit for bit.
void expect_norms_of_the_cpu(Backend& gpu);
void expect_norms_in_place(Backend& gpu);
void expect_norms_of_sums(Backend& gpu);
void expect_embeddings_of_the_cpu(Backend& gpu);
void expect_elementwise_of_the_cpu(Backend& gpu);
void expect_rotations_of_the_cpu(Backend& gpu);
void expect_attention_of_the_cpu(Backend& gpu);
/// Of one that splits all attention (CudaOptions::key_blocks_together = 0); a little: as few cases as take every barrier, for checkers that are slow.
void expect_a_little_split_attention(Backend& gpu);
void expect_split_attention_of_the_cpu(Backend& gpu);
void expect_rotated_appends(Backend& gpu);
void expect_moved_slots(Backend& gpu);
void expect_statistics_of_the_cpu(Backend& gpu);

/// Matrices of `dtype` and tables that are made on the device are those that the host would have read, bit for bit.
void expect_random_weights(Backend& gpu, DType dtype);

}  // namespace specdec::battery
