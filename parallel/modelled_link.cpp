#include "parallel/modelled_link.h"

#include <sched.h>

#include <cerrno>
#include <cmath>
#include <ctime>
#include <utility>

#include "parallel/common_clock.h"
#include "parallel/host_cores.h"

namespace specdec {
namespace {

constexpr std::int64_t kNanosecondsASecond = 1'000'000'000;
/// A sleep may end so much late, so the rest of a wait is spent looking at the clock.
constexpr std::int64_t kWakeUp = 60'000;

std::int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);  // one clock for all processes of a host
  return time.tv_sec * kNanosecondsASecond + time.tv_nsec;
}

void sleep_until(std::int64_t nanoseconds) {
  const timespec until{.tv_sec = nanoseconds / kNanosecondsASecond, .tv_nsec = nanoseconds % kNanosecondsASecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace

ModelledLink::ModelledLink(Communicator& inner, std::unique_ptr<Arrivals> arrivals, std::uint64_t seed, int cores)
    : inner_(inner), arrivals_(std::move(arrivals)), seed_(seed), own_cores_(inner.size() <= cores) {}

void ModelledLink::come(bool needs_all) {
  ++number_;
  if (needs_all) {
    meeting_ = number_;
  } else if (number_ - meeting_ >= Arrivals::kRemembered - 1) {
    inner_.barrier();  // roots go on at once: a row of broadcasts must not outrun what is remembered
    meeting_ = number_ - 1;
  }
  arrivals_->note(number_, now());
}

void ModelledLink::hold(std::int64_t since, double modelled) {
  const double seconds = interconnect_->with_jitter(modelled, seed_, number_);
  const std::int64_t until =
      since + static_cast<std::int64_t>(std::ceil(seconds * static_cast<double>(kNanosecondsASecond)));
  std::int64_t time = now();
  ++totals_.collectives;
  if (time > until) {
    ++totals_.late;
    totals_.late_seconds += static_cast<double>(time - until) / static_cast<double>(kNanosecondsASecond);
    return;
  }
  if (until - time > 2 * kWakeUp) {
    sleep_until(until - kWakeUp);
  }
  for (time = now(); time < until; time = now()) {
    if (!own_cores_) {
      sched_yield();  // the others look at the clock too, or still have work to do
    }
  }
}

void ModelledLink::all_reduce(std::span<float> data, Stream stream) {
  if (!is_modelled(data.size_bytes())) {
    return inner_.all_reduce(data, stream);
  }
  come(true);
  inner_.all_reduce(data, stream);
  hold(arrivals_->last(number_), interconnect_->all_reduce(data.size_bytes(), size()));
}

void ModelledLink::all_reduce(std::span<BF16> data, Stream stream) {
  if (!is_modelled(data.size_bytes())) {
    return inner_.all_reduce(data, stream);
  }
  come(true);
  inner_.all_reduce(data, stream);
  hold(arrivals_->last(number_), interconnect_->all_reduce(data.size_bytes(), size()));
}

void ModelledLink::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) {
  if (!is_modelled(mine.size())) {
    return inner_.all_gather(mine, all, stream);
  }
  come(true);
  inner_.all_gather(mine, all, stream);
  hold(arrivals_->last(number_), interconnect_->all_gather(mine.size(), size()));
}

void ModelledLink::gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) {
  if (!is_modelled(mine.size())) {
    return inner_.gather(mine, all, root, stream);
  }
  come(false);
  inner_.gather(mine, all, root, stream);
  if (rank() == root) {
    hold(arrivals_->last(number_), interconnect_->gather(mine.size(), size()));
  }
}

void ModelledLink::broadcast(std::span<std::byte> data, int root, Stream stream) {
  if (!is_modelled(data.size())) {
    return inner_.broadcast(data, root, stream);
  }
  come(false);
  inner_.broadcast(data, root, stream);
  if (rank() != root) {
    hold(arrivals_->of(root, number_), interconnect_->broadcast(data.size(), size()));
  }
}

void ModelledLink::barrier() {
  if (!is_modelled(1)) {
    return inner_.barrier();
  }
  come(true);
  inner_.barrier();
  hold(arrivals_->last(number_), interconnect_->barrier(size()));
}

std::unique_ptr<ModelledLink> make_modelled_link(Communicator& inner, std::uint64_t seed) {
  if (inner.size() == 1) {
    return std::make_unique<ModelledLink>(inner, nullptr, seed, 1);
  }
  require_common_clock(inner);
  const int cores = cores_of(inner);
  auto region = std::make_shared<SharedRegion>(SharedRegion::across(inner, Arrivals::region_bytes(inner.size())));
  auto arrivals = std::make_unique<Arrivals>(std::move(region), inner.rank(), inner.size());
  return std::make_unique<ModelledLink>(inner, std::move(arrivals), seed, cores);
}

}  // namespace specdec
