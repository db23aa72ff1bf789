#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace specdec {

/// Figures that a paper printed, to stand beside ours (configs/published/).
struct Published {
  std::string name;
  std::string title;
  std::string source;
  std::vector<double> k;
  std::vector<double> ms_128;      ///< mean ms for 128 tokens
  std::vector<double> efficiency;  ///< tokens per loop / (K + 1)
  std::vector<double> ms_per_loop;
};

/// As load_hardware, in configs/published/. Lists are equally long.
Published load_published(const std::string& name, const std::string& place);

}  // namespace specdec
