#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/progress.h"
#include "parallel/shared_region.h"
#include "parallel/waiter.h"

namespace specdec {

/// The ways in which shared memory adds; all have the bits of tree_sum.
enum class ShmReduction : std::uint8_t {
  kCombine,  ///< whoever comes second to a node of the tree adds its two halves, so the last rank finishes: one wait, n - 1 additions in all
  kOneShot,  ///< every rank adds all payloads: one wait, n (n - 1) additions side by side
  kTwoShot,  ///< every rank adds its n-th part of all payloads, then takes the other parts: two waits, n - 1 additions side by side
};

struct ShmOptions {
  int cores = 1;                          ///< that the ranks may run on together
  std::optional<ShmReduction> reduction;  ///< none: by payload and cores
  /// Whether one-shot writes large payloads past the caches, for all others to read (docs/kernels.md, "Threads of a rank, ranks of a host"); none: as this CPU is quicker.
  std::optional<bool> past_caches;
  /// The number before the first step. Other than 0 in tests of the wrap-around, where every rank is made before the first collective.
  std::uint32_t first_step = 0;
};

/// Ranks of one host, over memory that they share: the transport `shm` (docs/protocol.md, "Shared memory").
///
/// Every rank has a place for its payload in each of two halves of the region, used in turn, and a number on a cache
/// line of its own: of the last step that it has come to. A rank that has come to step s has left step s - 1, so the
/// half of step s is free again for step s + 2 as soon as all have come to step s + 1. Larger payloads go piece by
/// piece.
class ShmCommunicator final : public Communicator {
 public:
  static constexpr int kMaxRanks = 256;
  /// Bytes of a region for `ranks` ranks.
  static std::size_t region_bytes(int ranks);

  /// `region`: zeroed, of region_bytes(size) at least, the same for all ranks and for nobody else. `progress` must
  /// outlive it.
  ShmCommunicator(std::shared_ptr<SharedRegion> region, int rank, int size, Progress& progress, ShmOptions options);
  ~ShmCommunicator() override;
  ShmCommunicator(const ShmCommunicator&) = delete;
  ShmCommunicator& operator=(const ShmCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view transport() const override { return "shm"; }

  void all_reduce(std::span<float> data, Stream stream) override;
  void all_reduce(std::span<BF16> data, Stream stream) override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) override;
  void gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) override;
  void broadcast(std::span<std::byte> data, int root, Stream stream) override;
  void barrier() override;
  void report_progress() override { progress_.tick(); }

 private:
  struct Layout;
  using Step = std::uint32_t;  // wraps; compared by difference

  ShmReduction way(std::size_t bytes) const;
  template <typename T>
  void reduce(std::span<T> data);
  template <typename T>
  void combine(std::span<T> data);
  template <typename T>
  void one_shot(std::span<T> data);
  template <typename T>
  void two_shot(std::span<T> data);

  bool sibling_has_come() const;
  /// Adds along the tree as far as this rank comes second to its nodes; true at the top: the sum is in rank 0's place. `payload`: this rank's,
  /// in its place unless it is sure to come second.
  template <typename T>
  bool climb(std::span<const T> payload);
  /// Of each rank `count` bytes of a gather, `offset` bytes into what it brings, this one's own from where they are.
  void take_places(std::span<const std::byte> mine, std::span<std::byte> all, std::size_t offset,
                   std::size_t count) const;

  /// Starts a step: returns once this rank's place of the step's half is free.
  void begin_step();
  /// To this rank's place of the step, for all others.
  void offer(std::span<const std::byte> payload);
  bool past_caches(std::size_t bytes) const;
  /// Tells the others that this rank has come to the step, its payload in place.
  void come();
  bool all_have_come_to(Step step) const;
  void wait_for_all(Step step);

  Doorbell& bell(Step step);
  Doorbell& bell_for_all(Step step);
  /// Of `rank`; of the sums for rank size().
  std::byte* place(Step step, int rank) const;
  template <typename T>
  std::span<T> elements(Step step, int rank, std::size_t count) const;
  template <typename T>
  std::span<std::span<const T>> leaves();

  std::shared_ptr<SharedRegion> region_;
  Layout& layout_;
  int rank_;
  int size_;
  Progress& progress_;
  ShmOptions options_;
  bool past_caches_;  // large payloads
  Waiter waiter_;
  Step step_;                                         // the last one begun
  Step all_left_;                                     // every rank has left this one
  std::vector<std::span<const float>> float_leaves_;  // [size] scratch, as is the next
  std::vector<std::span<const BF16>> bf16_leaves_;
};

}  // namespace specdec
