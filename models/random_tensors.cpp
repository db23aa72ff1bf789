#include "models/random_tensors.h"

#include <fmt/format.h>

#include <cmath>

#include "backend/error.h"
#include "models/checkpoint.h"

namespace specdec {
namespace {

/// FNV-1a, of 64 bits.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  }
  return hash;
}

/// GPT-2's Conv1D tensors, attn.c_attn and so on, are [inputs, outputs], all others [outputs, inputs].
std::int64_t inputs_of(std::string_view name, const std::vector<std::int64_t>& shape) {
  return name.find(".c_") == std::string_view::npos ? shape[1] : shape[0];
}

}  // namespace

TensorView RandomTensors::tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
  check(shape.size() == 1 || shape.size() == 2, "RandomTensors: tensors are vectors or matrices");
  RandomElements elements{.seed = seed_, .tensor = hash_of(name)};
  if (shape.size() == 1) {
    elements.mean = name.ends_with("bias") ? 0.0F : 1.0F;
  } else {
    elements.scale = RandomElements::scale_of(1.0 / std::sqrt(static_cast<double>(inputs_of(name, shape))));
  }
  return {.dtype = DType::kBF16, .shape = shape, .random = elements};
}

std::string RandomTensors::name() const { return label_of({.random = true, .seed = seed_}); }

std::string label_of(const WeightsChoice& choice) {
  return choice.random ? fmt::format("weights: random (seed {})", choice.seed) : "";
}

std::unique_ptr<TensorSource> open_weights(const std::filesystem::path& directory, const WeightsChoice& choice) {
  if (choice.random) {
    return std::make_unique<RandomTensors>(choice.seed);
  }
  return std::make_unique<Checkpoint>(directory);
}

}  // namespace specdec
