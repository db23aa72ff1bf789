#pragma once

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/temporary_directory.h"

/// Directories and safetensors files that tests write.
namespace specdec::tests {

/// A safetensors file: its header's length, the header as given, the data.
inline std::string safetensors_file(const std::string& header, const std::string& data) {
  std::string file(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + data;
}

/// F32 tensors with the values 0, 1, 2, ... through all of them.
inline std::string f32_checkpoint(const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& tensors) {
  nlohmann::ordered_json header;
  std::string data;
  float next = 0;
  for (const auto& [name, shape] : tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t size : shape) {
      elements *= size;
    }
    const std::size_t begin = data.size();
    for (std::int64_t i = 0; i < elements; ++i, ++next) {
      data.append(reinterpret_cast<const char*>(&next), sizeof(next));
    }
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  }
  return safetensors_file(header.dump(), data);
}

}  // namespace specdec::tests
