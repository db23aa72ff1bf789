#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/bench_turns.h"
#include "parallel/interconnect.h"
#include "parallel/modelled_link.h"
#include "parallel/mpi_session.h"
#include "runtime/bench_cli.h"
#include "runtime/bench_results.h"

namespace specdec {

/// Plain MPI_Allreduce and the transports that were asked for, each once, ready to run; and rows of what they did. Those on a device run three times: called by the
/// host and, as NAME+graph, in a CUDA graph that the host launches; of that one, and of one among many in a graph, there are rows (kReplay).
class BenchContenders {
 public:
  /// With an `interconnect` it is modelled on top of every transport, though not of the baseline. Throws AgreedError
  /// for a transport that does not suit where the ranks are. Collective.
  BenchContenders(MpiSession& session, Communicator& control, const BenchCommand& command,
                  const std::optional<Interconnect>& interconnect);

  /// A row of each, the baseline first; none when `stop` held. Collective.
  std::vector<BenchRow> all_reduce(const BenchPayload& payload, const BenchEffort& effort,
                                   const std::function<bool()>& stop);
  /// The rows of one token of each.
  std::vector<BenchRow> decode(const ModelShape& model, std::int64_t rows, DType dtype, const BenchEffort& effort,
                               const std::function<bool()>& stop);

 private:
  struct Entry {
    std::string name;
    std::unique_ptr<Communicator> transport = {};
    std::unique_ptr<ModelledLink> link = {};  // over `transport`, or none
    Communicator* graph_of = nullptr;         // another entry's transport, in a CUDA graph
    DeviceWay way = DeviceWay::kCall;         // of one on a device
  };
  static Contender contender_of(const Entry& entry, Progress& progress);
  BenchRow row_of(const Entry& entry, DType dtype, std::size_t bytes) const;

  Communicator& control_;
  std::vector<Entry> entries_;
  std::vector<Contender> contenders_;
};

}  // namespace specdec
