#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "models/checkpoint.h"
#include "models/config.h"

/// Golden values (made by make_golden.py) and one way to run a model for comparison with them.
namespace specdec::golden {

inline const std::filesystem::path kModels = std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/golden/models";
inline const std::filesystem::path kShipped = std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/golden/shipped";
inline const std::filesystem::path kAssets = std::filesystem::path(SPECDEC_SOURCE_DIR) / "assets";

/// Names of the tiny models, sorted.
std::vector<std::string> model_names();
/// The numbers in a directory's model.safetensors, by name.
std::map<std::string, std::vector<float>> read_values(const std::filesystem::path& directory);
std::vector<Token> as_tokens(const std::vector<float>& values);

/// How a model is run.
struct Way {
  int ranks = 1;
  std::string backend = "reference";
  DType dtype = DType::kF32;
  std::int64_t first_block = 0;  ///< rows of the first pass; 0: all of them
  std::int64_t block = 1;        ///< rows of the others
  int threads = 1;
  /// What rank `rank` computes with instead of the backend that it is given.
  std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>, int rank)> replace_backend;
};

struct Result {
  std::vector<float> logits;     ///< [tokens, vocabulary]
  std::vector<Token> argmax;     ///< [tokens], by ParallelHead::argmax
  std::vector<float> logsumexp;  ///< [tokens], by ParallelHead::sums
};

/// Logits at every token, over ranks that are threads.
Result run_model(const std::filesystem::path& directory, const std::vector<Token>& tokens, const Way& way);

/// Every tiny model on every backend with every type of weights that both have, as the parameters of a test.
struct Case {
  std::string model;
  std::string backend;
  DType dtype = DType::kF32;
};
std::vector<Case> all_cases();
std::string name_of(const Case& c);

/// Whether the model leaves each of `ranks` ranks something to do.
bool splits(const ModelConfig& config, int ranks);

/// How far two fp32 evaluations of a model may lie apart. Rounding errors of a sum of n terms grow like u sqrt(n) times the sum (random
/// model, Higham and Mary 2019; u = 2^-24); a pass is 2 L + 1 such sums in a row (two branches a layer, the head), whose errors are
/// independent, so they add up like sqrt(2 L + 1), each at most as large as its share of the logits. Twice that for either evaluation.
double rounding_bound(const ModelConfig& config, const std::vector<float>& logits);

/// The relative error, in rms, of a number that is rounded to `dtype`, kBF16 or kInt8: docs/numerics.md ("Other rank counts" and "int8") derives it.
double rounding_error(DType dtype);

/// The same as rounding_bound() for the inputs of products rounded to `dtype`, for evaluations that differ in the order of their fp32 sums. On logits of
/// a random model it raises a false alarm with a probability of at most 1e-6.
double rounded_bound(const ModelConfig& config, DType dtype, const std::vector<float>& logits);

double largest_difference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace specdec::golden
