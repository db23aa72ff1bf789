#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/support/temporary_directory.h"

namespace specdec::tests {

/// Sizes of a model made for a test. Weights are random; `noise` mixes in other random numbers, so that two models of one seed
/// and different noise agree as a target and its draft do.
struct RandomModel {
  std::string family = "llama";  ///< or "gpt2"
  std::int64_t layers = 3;
  std::int64_t d_model = 40;
  std::int64_t heads = 8;
  std::int64_t kv_heads = 2;  ///< llama only
  std::int64_t head_dim = 6;  ///< llama only; gpt2 has d_model / heads
  std::int64_t feed_forward = 100;
  std::int64_t vocabulary = 300;
  std::int64_t context = 96;
  bool tied = true;  ///< llama only
  std::uint32_t seed = 1;
  float noise = 0;
};

/// Writes config.json and model.safetensors (F32) into `directory`, which is made.
void write_random_model(const RandomModel& model, const std::filesystem::path& directory);

}  // namespace specdec::tests
