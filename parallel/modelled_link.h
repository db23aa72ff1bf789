#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "parallel/alarm.h"
#include "parallel/arrivals.h"
#include "parallel/communicator.h"
#include "parallel/interconnect.h"

namespace specdec {

/// How a modelled interconnect kept its time.
struct ModelledTotals {
  std::int64_t collectives = 0;
  /// That took longer than modelled: the real collective did, or this rank got no core in time, by more than 5% of the
  /// modelled time.
  std::int64_t late = 0;
  double late_seconds = 0;      ///< by how much, in all
  double modelled_seconds = 0;  ///< that all of them should have taken

  ModelledTotals& operator+=(const ModelledTotals& more) {
    collectives += more.collectives;
    late += more.late;
    late_seconds += more.late_seconds;
    modelled_seconds += more.modelled_seconds;
    return *this;
  }
  friend ModelledTotals operator-(const ModelledTotals& a, const ModelledTotals& b) {
    return {a.collectives - b.collectives, a.late - b.late, a.late_seconds - b.late_seconds,
            a.modelled_seconds - b.modelled_seconds};
  }
};

/// Puts a described interconnect on top of a real transport: a collective is done at max(real completion, arrival of the
/// last rank that it needs + modelled time), by the clock that all ranks of one host share. Data travel over the real
/// transport, so the results have its bits; nothing is ever faster than it.
///
/// A broadcast needs its root alone, and the root goes on at once; so does a rank that gives to a gather. One rank waits
/// for nobody, and an empty payload sends no message: both go straight to the inner transport.
class ModelledLink final : public Communicator {
 public:
  /// `inner`: ranks of one host. `arrivals`: of these ranks, used by nobody else. `cores`: that they may run on together.
  /// `seed` of the jitter, the same on all ranks. Native at first.
  ModelledLink(Communicator& inner, std::unique_ptr<Arrivals> arrivals, std::uint64_t seed, int cores);

  /// From now on collectives take the time of `interconnect`; none: that of the inner transport, which is then called
  /// without a detour. Every rank changes to the same one between the same two collectives.
  void use(std::optional<Interconnect> interconnect) { interconnect_ = std::move(interconnect); }
  /// Null while native.
  const Interconnect* interconnect() const { return interconnect_ ? &*interconnect_ : nullptr; }
  /// Running totals on this rank, native collectives left out; a phase's share is the difference of two readings.
  const ModelledTotals& totals() const { return totals_; }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view transport() const override { return inner_.transport(); }
  bool on_device() const override { return inner_.on_device(); }

  void all_reduce(std::span<float> data, Stream stream) override;
  void all_reduce(std::span<BF16> data, Stream stream) override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) override;
  void gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) override;
  void broadcast(std::span<std::byte> data, int root, Stream stream) override;
  void barrier() override;
  void report_progress() override { inner_.report_progress(); }
  void poll() override { inner_.poll(); }

 private:
  /// What takes its time over a payload of so many bytes; null where nothing does.
  const Interconnect* modelling(std::size_t bytes) const { return size() > 1 && bytes > 0 ? interconnect() : nullptr; }
  /// This rank comes to the next collective. `needs_all`: no rank leaves it before all have come.
  void come(bool needs_all);
  /// Returns `modelled` seconds after `since`, by the common clock.
  void hold(const Interconnect& by, std::int64_t since, double modelled, Alarm::Meanwhile meanwhile);

  Communicator& inner_;
  std::unique_ptr<Arrivals> arrivals_;
  std::optional<Interconnect> interconnect_;
  std::uint64_t seed_;
  Alarm alarm_;
  std::uint64_t number_ = 0;   // of the last modelled collective
  std::uint64_t meeting_ = 0;  // the last one that needed all
  ModelledTotals totals_;
};

/// A ModelledLink over `inner`, native at first, with its memory for arrivals. Collective. Throws AgreedError on every rank:
/// kBadInput where the ranks have no common clock, that is, are on several hosts.
std::unique_ptr<ModelledLink> make_modelled_link(Communicator& inner, std::uint64_t seed);

}  // namespace specdec
