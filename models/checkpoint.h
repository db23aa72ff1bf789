#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace specdec {

/// One tensor of a mapped checkpoint.
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
};

/// The safetensors files of one directory, mapped read-only: `model.safetensors`, or the files that
/// `model.safetensors.index.json` names. Opening reads the headers only; pages are read when a shard touches them.
///
/// Every header is distrusted: sizes, offsets, overlaps, holes, shapes and types are checked against the file before
/// anything is mapped into a tensor. Errors are kBadInput and name file and tensor.
class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& directory);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  bool contains(std::string_view name) const;
  /// Throws kBadInput if the tensor is missing or its shape is another one; `shape` is what the config says.
  const TensorView& tensor(std::string_view name, const std::vector<std::int64_t>& shape) const;
  /// All tensors by name.
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  const std::filesystem::path& directory() const { return directory_; }

 private:
  class Mapping;
  std::filesystem::path directory_;
  std::vector<std::unique_ptr<Mapping>> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

}  // namespace specdec
