#include "runtime/transport_choice.h"

#include <fmt/format.h>

#include "backend/error.h"
#include "parallel/transports.h"

namespace specdec {

std::vector<std::string> transport_names() { return {kTransports.begin(), kTransports.end()}; }

void require_backend_for(std::string_view transport, std::string_view backend, std::string_view place) {
  if (is_on_device(transport) && backend != "cuda") {
    throw_bad_input(fmt::format("{}: found {} with backend {}, expected backend cuda, or another transport", place,
                                transport, backend));
  }
}

}  // namespace specdec
