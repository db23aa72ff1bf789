#include "parallel/common_clock.h"

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "parallel/agree.h"

namespace specdec {
namespace {

/// Travels as its bytes.
struct Place {
  std::array<char, 40> boot{};  // drawn by the kernel when it starts
  std::uint64_t network = 0;
  std::uint64_t time = 0;
  auto operator<=>(const Place&) const = default;
};

std::uint64_t inode(const char* path) {
  struct stat facts {};
  return stat(path, &facts) == 0 ? facts.st_ino : 0;
}

Place this_place() {
  Place place;
  std::ifstream("/proc/sys/kernel/random/boot_id").getline(place.boot.data(), place.boot.size());
  place.network = inode("/proc/self/ns/net");
  place.time = inode("/proc/self/ns/time");
  return place;
}

}  // namespace

void require_common_clock(Communicator& group) {
  const Place mine = this_place();
  std::vector<Place> all(group.size());
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), Stream{});
  const std::size_t places = std::set<Place>(all.begin(), all.end()).size();
  if (places > 1) {
    throw AgreedError(ErrorKind::kBadInput,
                      "interconnect: found " + std::to_string(group.size()) + " ranks on " + std::to_string(places) +
                          " hosts, expected all on one, since a modelled interconnect needs their common clock "
                          "(interconnect: native measures the real one)");
  }
}

}  // namespace specdec
