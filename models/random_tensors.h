#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/tensor_source.h"

namespace specdec {

/// The weights of a model of any shape, without a checkpoint (`weights: random`): what it writes means nothing, what it costs is what a
/// trained model of its shape would cost. A tensor is a function of the seed and of its name, so that target and draft from the same folder
/// are the same model.
///
/// A matrix has the standard deviation 1 / sqrt(inputs) around 0, so that a product keeps the size of what it is given; the embedding is
/// that of a head with d_model inputs. Norms scale by 1 and biases are 0. So each branch adds about as much as the ones before it, and logits have
/// a variance of about 1, whatever the shape.
class RandomTensors final : public TensorSource {
 public:
  explicit RandomTensors(std::uint64_t seed) : seed_(seed) {}

  bool contains(std::string_view /*name*/) const override { return false; }
  TensorView tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  const std::map<std::string, TensorView, std::less<>>& tensors() const override { return none_; }
  /// "weights: random (seed 3)".
  std::string name() const override;

 private:
  std::uint64_t seed_;
  std::map<std::string, TensorView, std::less<>> none_;
};

/// What the weights of a job's models are.
struct WeightsChoice {
  bool random = false;
  std::uint64_t seed = 0;  ///< of random ones
};

/// The label of everything that was done with random weights, "weights: random (seed 3)"; empty for a checkpoint.
std::string label_of(const WeightsChoice& choice);

/// Random tensors, or the checkpoint in `directory`. Throws kBadInput as Checkpoint does.
std::unique_ptr<TensorSource> open_weights(const std::filesystem::path& directory, const WeightsChoice& choice);

}  // namespace specdec
