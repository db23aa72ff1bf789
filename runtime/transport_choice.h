#pragma once

#include <string>
#include <string_view>
#include <vector>

/// What a transport may be called, wherever a user names one: `parallel.transport` and the programs' --transport.
namespace specdec {

/// kTransports (transports.h) as words.
std::vector<std::string> transport_names();

/// Throws kBadInput, beginning with `place`, where a model computes on the host and `transport` sums on GPUs.
void require_backend_for(std::string_view transport, std::string_view backend, std::string_view place);

}  // namespace specdec
