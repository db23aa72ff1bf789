#include "parallel/rank_place.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <span>
#include <string_view>

namespace specdec {
namespace {

using Text = std::array<char, 256>;

/// RankPlace as it travels.
struct PlaceMessage {
  Text host{};
  Text cpu{};
  Text kernel{};
  Text cores{};
  int core_count = 0;
  int host_cores = 0;
};

void put(std::string_view text, Text& into) { std::ranges::copy(text.substr(0, into.size() - 1), into.begin()); }

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown CPU";
}

std::string list_of(const cpu_set_t& cores) {
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &cores)) {
      continue;
    }
    int last = core;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &cores)) {
      ++last;
    }
    text += (text.empty() ? "" : ",") + std::to_string(core) + (last > core ? "-" + std::to_string(last) : "");
    core = last;
  }
  return text;
}

PlaceMessage own_place() {
  PlaceMessage place;
  gethostname(place.host.data(), place.host.size() - 1);
  put(cpu_model(), place.cpu);
  utsname system{};
  uname(&system);
  put(std::string(system.sysname) + " " + system.release, place.kernel);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  put(list_of(cores), place.cores);
  place.core_count = CPU_COUNT(&cores);
  place.host_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return place;
}

}  // namespace

std::vector<RankPlace> rank_places(Communicator& group) {
  const PlaceMessage mine = own_place();
  std::vector<PlaceMessage> all(group.size());
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), Stream{});
  std::vector<RankPlace> places;
  places.reserve(all.size());
  for (const PlaceMessage& message : all) {
    places.push_back({.host = message.host.data(),
                      .cpu = message.cpu.data(),
                      .kernel = message.kernel.data(),
                      .cores = message.cores.data(),
                      .core_count = message.core_count,
                      .host_cores = message.host_cores});
  }
  return places;
}

}  // namespace specdec
