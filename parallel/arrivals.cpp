#include "parallel/arrivals.h"

#include <algorithm>
#include <utility>

#include "backend/error.h"

namespace specdec {

std::size_t Arrivals::region_bytes(int ranks) { return sizeof(Slot) * kRemembered * ranks; }

Arrivals::Arrivals(std::shared_ptr<SharedRegion> region, int rank, int size)
    : region_(std::move(region)), rank_(rank), size_(size) {
  check(region_->bytes().size() >= region_bytes(size), "Arrivals: too small a region");
}

Arrivals::Slot& Arrivals::slot(int rank, std::uint64_t number) const {
  return reinterpret_cast<Slot*>(region_->bytes().data())[rank * kRemembered + number % kRemembered];
}

void Arrivals::note(std::uint64_t number, std::int64_t nanoseconds) {
  Slot& mine = slot(rank_, number);
  mine.nanoseconds.store(nanoseconds, std::memory_order_relaxed);
  mine.number.store(number, std::memory_order_release);
}

std::int64_t Arrivals::of(int rank, std::uint64_t number) const {
  const Slot& theirs = slot(rank, number);
  check(theirs.number.load(std::memory_order_acquire) == number, "Arrivals: a rank is further than is remembered");
  return theirs.nanoseconds.load(std::memory_order_relaxed);
}

std::int64_t Arrivals::last(std::uint64_t number) const {
  std::int64_t latest = of(0, number);
  for (int r = 1; r < size_; ++r) {
    latest = std::max(latest, of(r, number));
  }
  return latest;
}

}  // namespace specdec
