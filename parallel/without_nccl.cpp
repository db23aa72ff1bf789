#include <string>

#include "parallel/agree.h"
#include "parallel/nccl_communicator.h"

namespace specdec {

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> /*host*/, NcclReduction reduction,
                                                     const CudaOptions& /*gpu*/, Progress& /*progress*/,
                                                     std::string_view place) {
  const std::string name = reduction == NcclReduction::kTree ? "nccl" : "nccl-fast";
  throw AgreedError(ErrorKind::kBadInput,
                    std::string(place) + ": found " + name +
                        ", but this program was built without NCCL (configure with the preset cuda, docs/gpu.md)");
}

}  // namespace specdec
