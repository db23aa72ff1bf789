#pragma once

#include <cstdint>
#include <optional>
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
    double ms_alone = 0;          ///< a token
    double ms = 0;                ///< a token, speculative
    double speedup = 0;           ///< as printed, which need not be the quotient
    std::optional<double> alpha;  ///< where its figures say it, to predict the line with
  };
  std::vector<Line> table;  ///< may be empty

  /// What the cost model is asked for to stand beside it: the paper's machine and pair. Empty: nothing.
  struct Job {
    std::string hardware;
    std::string config;
    std::int64_t fit_k = 0;  ///< the K whose tokens a loop give alpha (eq. 1)
    std::int64_t context = 0;
  };
  Job job;
};

/// What the cost model says of the paper's own machine, in the paper's units, each list as long as `k`; the acceptance rate that it took.
struct PublishedPrediction {
  double alpha = 0;
  std::vector<double> ms_128;
  std::vector<double> efficiency;
  std::vector<double> ms_per_loop;

  /// The times of a line of the table.
  struct Line {
    double ms_alone = 0;
    double ms = 0;
    double speedup = 0;
  };
  std::vector<std::optional<Line>> table;  ///< as long as the paper's; nothing of lines without an acceptance rate
};

/// Of one that has a job. Throws kBadInput where its hardware or its config cannot be read.
PublishedPrediction predict_published(const Published& of, const std::string& place);

/// As load_hardware, in configs/published/. Lists are equally long, and so are those of the table.
Published load_published(const std::string& name, const std::string& place);

}  // namespace specdec
