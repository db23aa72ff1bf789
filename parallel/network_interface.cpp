#include "parallel/network_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "backend/error.h"

namespace specdec {
namespace {

struct Subnet {
  std::uint32_t address = 0;  // host byte order
  std::uint32_t mask = 0;
};

/// Of "a.b.c.d/bits".
std::optional<Subnet> parse_subnet(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) {
    return std::nullopt;
  }
  in_addr address{};
  unsigned bits = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data() + slash + 1, end, bits);
  if (inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) != 1 || error != std::errc() || stopped != end ||
      bits > 32) {
    return std::nullopt;
  }
  const std::uint32_t mask = bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits);
  return Subnet{ntohl(address.s_addr) & mask, mask};
}

std::optional<std::uint32_t> find(std::span<const InterfaceAddress> addresses, const std::string& name) {
  const std::optional<Subnet> subnet = parse_subnet(name);
  for (const InterfaceAddress& candidate : addresses) {
    if (subnet ? (ntohl(candidate.address) & subnet->mask) == subnet->address : candidate.interface == name) {
      return candidate.address;
    }
  }
  return std::nullopt;
}

std::string describe(const InterfaceAddress& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address.address, text.data(), text.size());
  return address.interface + " (" + text.data() + ")";
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return found;
  }
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET && (entry->ifa_flags & IFF_UP) != 0) {
      sockaddr_in address{};
      std::memcpy(&address, entry->ifa_addr, sizeof address);
      found.push_back({.interface = entry->ifa_name,
                       .address = address.sin_addr.s_addr,
                       .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  freeifaddrs(list);
  return found;
}

std::optional<std::uint32_t> select_address(std::span<const InterfaceAddress> addresses, std::string_view selection,
                                            std::string_view key) {
  if (selection.empty()) {
    return std::nullopt;
  }
  for (std::size_t begin = 0; begin <= selection.size();) {
    const std::size_t end = std::min(selection.find(',', begin), selection.size());
    if (const auto address = find(addresses, std::string(selection.substr(begin, end - begin)))) {
      return address;
    }
    begin = end + 1;
  }
  std::string known;
  for (const InterfaceAddress& address : addresses) {
    known += (known.empty() ? "" : ", ") + describe(address);
  }
  throw_bad_input(std::string(key) + ": found " + std::string(selection) + ", expected an interface or a subnet of " +
                  "that host: " + (known.empty() ? "it has no IPv4 address" : known));
}

}  // namespace specdec
