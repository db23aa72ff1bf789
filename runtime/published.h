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

  /// A line of a table that it printed, with a K of its own.
  struct Line {
    std::string task;
    double k = 0;
    double ms_alone = 0;  ///< a token
    double ms = 0;        ///< a token, speculative
    double speedup = 0;   ///< as printed, which need not be the quotient
  };
  std::vector<Line> table;  ///< may be empty
};

/// As load_hardware, in configs/published/. Lists are equally long, and so are those of the table.
Published load_published(const std::string& name, const std::string& place);

}  // namespace specdec
