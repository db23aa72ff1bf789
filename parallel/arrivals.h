#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "parallel/shared_region.h"

namespace specdec {

/// When each rank of one host came to each of the last collectives, by the clock of the host: a rank writes its time before
/// the collective, and whoever the collective has released finds all of them.
class Arrivals {
 public:
  /// Collectives that are remembered: a rank that is further ahead than this writes over what another still reads.
  static constexpr std::size_t kRemembered = 64;

  static std::size_t region_bytes(int ranks);

  /// `region`: zeroed, of region_bytes(size) at least, the same for all ranks and for nobody else.
  Arrivals(std::shared_ptr<SharedRegion> region, int rank, int size);

  /// This rank comes to collective `number` (from 1) at `nanoseconds`.
  void note(std::uint64_t number, std::int64_t nanoseconds);
  /// When `rank` came to collective `number`, of the last kRemembered ones. It must have come.
  std::int64_t of(int rank, std::uint64_t number) const;
  /// When the last of all ranks did.
  std::int64_t last(std::uint64_t number) const;

 private:
  struct Slot {
    std::atomic<std::uint64_t> number;
    std::atomic<std::int64_t> nanoseconds;
  };
  Slot& slot(int rank, std::uint64_t number) const;

  std::shared_ptr<SharedRegion> region_;
  int rank_;
  int size_;
};

}  // namespace specdec
