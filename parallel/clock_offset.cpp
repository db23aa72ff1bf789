#include "parallel/clock_offset.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "parallel/tracer.h"
#include "parallel/value_bytes.h"

namespace specdec {
namespace {

constexpr int kRoundTrips = 64;

/// Names the clock that this process reads: the boot of its kernel, and the time namespace. Empty where the system does not say.
std::array<char, 128> clock_identity() {
  std::array<char, 128> identity{};
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::array<char, 64> space{};
  const ssize_t length = readlink("/proc/self/ns/time", space.data(), space.size());
  if (!boot.empty()) {
    const std::string all =
        boot + ' ' + std::string(space.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
    std::copy_n(all.begin(), std::min(all.size(), identity.size()), identity.begin());
  }
  return identity;
}

/// For every rank, whether it reads the clock of rank 0.
std::vector<bool> who_shares_a_clock(Communicator& group) {
  const auto mine = clock_identity();
  std::vector<std::array<char, 128>> all(static_cast<std::size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), {});
  std::vector<bool> shares;
  shares.reserve(all.size());
  for (const auto& theirs : all) {
    shares.push_back(theirs[0] != 0 && theirs == all.front());
  }
  return shares;
}

}  // namespace

ClockOffset measure_clock_offset(Communicator& group) {
  const std::vector<bool> shares = who_shares_a_clock(group);
  const bool measure = std::ranges::find(shares.begin() + 1, shares.end(), false) != shares.end();
  const ClockOffset measured = measure ? measure_clock_offset(group, &Tracer::now) : ClockOffset{};
  return shares[static_cast<std::size_t>(group.rank())] ? ClockOffset{.at = Tracer::now()} : measured;
}

ClockOffset measure_clock_offset(Communicator& group, const std::function<std::int64_t()>& now) {
  const auto size = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> shown(size);
  std::vector<ClockOffset> best(size, {.uncertainty = std::numeric_limits<std::int64_t>::max()});
  for (int trip = 0; trip < kRoundTrips; ++trip) {
    group.barrier();  // nobody comes late, which would only make the trip longer
    std::int64_t sent = now();
    group.broadcast(value_bytes(sent), 0, {});
    std::int64_t mine = now();
    group.gather(value_bytes(mine), std::as_writable_bytes(std::span(shown)), 0, {});
    if (group.rank() == 0) {
      // Every clock was read after `sent` and before this.
      const std::int64_t received = now();
      const std::int64_t bound = (received - sent + 1) / 2;
      for (std::size_t r = 0; r < size; ++r) {
        if (bound < best[r].uncertainty) {
          best[r] = {.at = shown[r], .offset = sent + bound - shown[r], .uncertainty = bound};
        }
      }
    }
  }
  best[0] = {.at = best[0].at};
  group.broadcast(std::as_writable_bytes(std::span(best)), 0, {});
  return best[static_cast<std::size_t>(group.rank())];
}

std::int64_t CommonClock::operator()(std::int64_t own) const {
  if (last_.at == first_.at || last_.offset == first_.offset) {
    return own + first_.offset;
  }
  const double share = static_cast<double>(own - first_.at) / static_cast<double>(last_.at - first_.at);
  return own + first_.offset + std::llround(share * static_cast<double>(last_.offset - first_.offset));
}

}  // namespace specdec
