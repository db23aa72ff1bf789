#pragma once

#include <string>

#include "parallel/interconnect.h"

namespace specdec {

/// A machine as far as the cost model knows it (configs/hardware/): what a rank reads and computes, what comes on top, and how ranks meet.
struct Hardware {
  std::string name;
  std::string source;          ///< where its figures are from
  int ranks = 1;               ///< that it has
  double read_rate = 0;        ///< bytes a second of weights and cache that a rank reads when it reads alone
  double node_read_rate = 0;   ///< of all ranks of a node together; 0: as many times `read_rate`
  int ranks_per_node = 0;      ///< that share node_read_rate; 0: all
  double operations_rate = 0;  ///< floating-point operations a second of a rank
  double layer_seconds = 0;    ///< a layer, beside what it reads and its all-reduces
  double pass_seconds = 0;     ///< a pass, beside its layers
  double drafted_seconds = 0;  ///< a drafted token, beside its pass: sampling, and bookkeeping
  double loop_seconds = 0;     ///< a loop, beside its passes and drafted tokens
  double cache_bytes = 2;      ///< of an element of the KV cache
  double payload_bytes = 2;    ///< of an element that is reduced
  Interconnect interconnect;

  /// Bytes a second that each of `ranks` ranks reads when all do.
  double read_rate_of(int ranks) const;
};

}  // namespace specdec
