#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace specdec {

/// An IPv4 address of this host, in network byte order.
struct InterfaceAddress {
  std::string interface;
  std::uint32_t address = 0;
  bool loopback = false;
};

/// Of all interfaces that are up.
std::vector<InterfaceAddress> interface_addresses();

/// The first of `addresses` that `selection` names: interfaces and subnets ("eth0", "10.1.0.0/16"), separated by commas, the first that
/// there is here, as in Open MPI's btl_tcp_if_include. Nothing for an empty selection. Throws kBadInput, with `key` ("VARIABLE on HOST") as
/// the place, for one that names nothing here.
std::optional<std::uint32_t> select_address(std::span<const InterfaceAddress> addresses, std::string_view selection,
                                            std::string_view key);

}  // namespace specdec
