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

/// The safetensors files of one directory, mapped read-only: `model.safetensors`, or the files that
/// `model.safetensors.index.json` names. Opening reads the headers only; pages are read when a shard touches them.
///
/// Every header is distrusted: sizes, offsets, overlaps, holes, shapes and types are checked against the file before
/// anything is mapped into a tensor. Errors are kBadInput and name file and tensor.
class Checkpoint final : public TensorSource {
 public:
  explicit Checkpoint(const std::filesystem::path& directory);
  ~Checkpoint() override;
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  bool contains(std::string_view name) const override;
  TensorView tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  const std::map<std::string, TensorView, std::less<>>& tensors() const override { return tensors_; }
  /// The directory.
  std::string name() const override { return directory_.string(); }

 private:
  class Mapping;
  std::filesystem::path directory_;
  std::vector<std::unique_ptr<Mapping>> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

}  // namespace specdec
