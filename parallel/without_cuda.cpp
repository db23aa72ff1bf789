#include <string>

#include "parallel/agree.h"
#include "parallel/device_payload.h"
#include "parallel/ipc_communicator.h"

namespace specdec {

std::unique_ptr<Communicator> make_ipc_communicator(std::unique_ptr<Communicator> /*host*/, const CudaOptions& /*gpu*/,
                                                    Progress& /*progress*/, std::string_view place) {
  throw AgreedError(
      ErrorKind::kBadInput,
      std::string(place) +
          ": found ipc, but this program was built without CUDA (configure with the preset cuda, docs/gpu.md)");
}

std::unique_ptr<DevicePayload> make_device_payload(Communicator& /*group*/, DType /*dtype*/, std::size_t /*elements*/,
                                                   DeviceWay /*way*/, Progress& /*progress*/) {
  throw Error(ErrorKind::kInternal, "a payload on a GPU in a program that was built without CUDA");
}

}  // namespace specdec
