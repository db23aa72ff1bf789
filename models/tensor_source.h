#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace specdec {

/// One tensor of a model, row-major: mapped bytes, or elements that are made where they are wanted.
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::optional<RandomElements> random = {};
  const SourceFile* source = nullptr;  ///< as WeightView's
};

/// Where the tensors of a model come from: files (checkpoint.h) or a generator (random_tensors.h).
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  /// Whether a tensor was saved under this name. A generator has saved none, and makes whatever is asked for.
  virtual bool contains(std::string_view name) const = 0;
  /// Throws kBadInput if there is none of this name and shape; `shape` is what the config says.
  virtual TensorView tensor(std::string_view name, const std::vector<std::int64_t>& shape) const = 0;
  /// All that were saved, by name.
  virtual const std::map<std::string, TensorView, std::less<>>& tensors() const = 0;
  /// For errors and reports: the folder, or what RandomTensors::name() says.
  virtual std::string name() const = 0;

 protected:
  TensorSource() = default;
  TensorSource(const TensorSource&) = default;
  TensorSource(TensorSource&&) = default;
  TensorSource& operator=(const TensorSource&) = default;
  TensorSource& operator=(TensorSource&&) = default;
};

}  // namespace specdec
