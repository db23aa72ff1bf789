#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "parallel/decode_bench.h"

namespace specdec {

/// A model as far as the communication of its passes goes.
struct ModelShape {
  std::string name;  ///< as it was written
  std::int64_t layers = 0;
  std::int64_t d_model = 0;
  std::int64_t vocabulary = 0;
  std::int64_t layer_parameters = 0;  ///< of one layer's matrices
  std::optional<double> gap_us;       ///< compute before each all-reduce, where it is given

  std::string description() const;
  /// A rank's part of a pass over `rows` rows, with bf16 weights cut evenly over `ranks`.
  DecodeShape decode(std::int64_t rows, int ranks) const;
};

/// "layers=32,d_model=4096[,vocab=32000][,gap_us=120]": a layer has 12 d_model^2 parameters, as of GPT-2. Or the directory of a model, of
/// which config.json is read (find_model in paths.h). Errors are kBadInput and begin with `flag`.
ModelShape parse_model_shape(std::string_view text, std::string_view flag);

}  // namespace specdec
