#include "parallel/modelled_link.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/error.h"
#include "parallel/common_clock.h"
#include "parallel/host_clock.h"
#include "parallel/host_cores.h"

namespace specdec {

using enum Alarm::Meanwhile;

namespace {

constexpr double kNanoseconds = 1e9;  // of a second
// A longer wait tells the watchdog now and then that this rank lives.
constexpr std::int64_t kQuiet = 100'000'000;
// Of the modelled time: what a look at the clock and a scheduler at rest may cost.
constexpr double kTolerance = 0.05;

}  // namespace

ModelledLink::ModelledLink(Communicator& inner, std::unique_ptr<Arrivals> arrivals, std::uint64_t seed, int cores)
    : inner_(inner), arrivals_(std::move(arrivals)), seed_(seed), alarm_(inner.size(), cores) {}

void ModelledLink::come(bool needs_all) {
  ++number_;
  if (needs_all) {
    meeting_ = number_;
  } else if (number_ - meeting_ >= Arrivals::kRemembered - 1) {
    inner_.barrier();  // roots go on at once: a row of broadcasts must not outrun what is remembered
    meeting_ = number_ - 1;
  }
  arrivals_->note(number_, host_nanoseconds());
}

void ModelledLink::hold(const Interconnect& by, std::int64_t since, double modelled, Alarm::Meanwhile meanwhile) {
  const double seconds = by.with_jitter(modelled, seed_, number_);
  const std::int64_t until = since + static_cast<std::int64_t>(std::ceil(seconds * kNanoseconds));
  const std::int64_t real = host_nanoseconds();
  std::int64_t end = real;
  while (end < until) {
    inner_.report_progress();
    end = alarm_.wait(std::min(until, end + kQuiet), meanwhile);
  }
  const double over = static_cast<double>(end - until) / kNanoseconds;
  ++totals_.collectives;
  totals_.modelled_seconds += seconds;
  if (real > until || over > kTolerance * seconds) {
    ++totals_.late;
    totals_.late_seconds += over;
  }
}

void ModelledLink::all_reduce(std::span<float> data, Stream stream) {
  const Interconnect* const by = modelling(data.size_bytes());
  if (by == nullptr) {
    return inner_.all_reduce(data, stream);
  }
  come(true);
  inner_.all_reduce(data, stream);
  hold(*by, arrivals_->last(number_), by->all_reduce(data.size_bytes(), size()), kAllWait);
}

void ModelledLink::all_reduce(std::span<BF16> data, Stream stream) {
  const Interconnect* const by = modelling(data.size_bytes());
  if (by == nullptr) {
    return inner_.all_reduce(data, stream);
  }
  come(true);
  inner_.all_reduce(data, stream);
  hold(*by, arrivals_->last(number_), by->all_reduce(data.size_bytes(), size()), kAllWait);
}

void ModelledLink::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) {
  const Interconnect* const by = modelling(mine.size());
  if (by == nullptr) {
    return inner_.all_gather(mine, all, stream);
  }
  come(true);
  inner_.all_gather(mine, all, stream);
  hold(*by, arrivals_->last(number_), by->all_gather(mine.size(), size()), kAllWait);
}

void ModelledLink::gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) {
  const Interconnect* const by = modelling(mine.size());
  if (by == nullptr) {
    return inner_.gather(mine, all, root, stream);
  }
  come(false);
  inner_.gather(mine, all, root, stream);
  if (rank() == root) {
    hold(*by, arrivals_->last(number_), by->gather(mine.size(), size()), kOthersWork);
  }
}

void ModelledLink::broadcast(std::span<std::byte> data, int root, Stream stream) {
  const Interconnect* const by = modelling(data.size());
  if (by == nullptr) {
    return inner_.broadcast(data, root, stream);
  }
  come(false);
  inner_.broadcast(data, root, stream);
  if (rank() != root) {
    hold(*by, arrivals_->of(root, number_), by->broadcast(data.size(), size()), kOthersWork);
  }
}

void ModelledLink::barrier() {
  const Interconnect* const by = modelling(1);
  if (by == nullptr) {
    return inner_.barrier();
  }
  come(true);
  inner_.barrier();
  hold(*by, arrivals_->last(number_), by->barrier(size()), kAllWait);
}

std::unique_ptr<ModelledLink> make_modelled_link(Communicator& inner, std::uint64_t seed) {
  check(!inner.on_device(),
        "a modelled interconnect holds calls that have ended when they return: not those of a device");
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
