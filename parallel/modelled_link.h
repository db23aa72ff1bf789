#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "parallel/arrivals.h"
#include "parallel/communicator.h"
#include "parallel/interconnect.h"

namespace specdec {

/// How a modelled interconnect kept its time.
struct ModelledTotals {
  std::int64_t collectives = 0;
  std::int64_t late = 0;    ///< whose real time was longer than the modelled one: they took what they really took
  double late_seconds = 0;  ///< by how much, in all
};

/// Puts a described interconnect on top of a real transport: a collective is done at max(real completion, arrival of the
/// last rank that it needs + modelled time), by the clock that all ranks of one host share. Data travel over the real
/// transport, so the results have its bits; nothing is ever faster than it.
///
/// A broadcast needs its root alone, and the root goes on at once; so does a rank that gives to a gather.
class ModelledLink final : public Communicator {
 public:
  /// `inner`: ranks of one host. `arrivals`: of these ranks, used by nobody else. `cores`: that they may run on together.
  ModelledLink(Communicator& inner, std::unique_ptr<Arrivals> arrivals, Interconnect interconnect, std::uint64_t seed,
               int cores);

  const Interconnect& interconnect() const { return interconnect_; }
  /// Running totals on this rank.
  const ModelledTotals& totals() const { return totals_; }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view transport() const override { return inner_.transport(); }

  void all_reduce(std::span<float> data, Stream stream) override;
  void all_reduce(std::span<BF16> data, Stream stream) override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) override;
  void gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) override;
  void broadcast(std::span<std::byte> data, int root, Stream stream) override;
  void barrier() override;
  void report_progress() override { inner_.report_progress(); }

 private:
  void come();
  /// Returns `modelled` seconds after `since`, by the common clock.
  void hold(std::int64_t since, double modelled);

  Communicator& inner_;
  std::unique_ptr<Arrivals> arrivals_;
  Interconnect interconnect_;
  std::uint64_t seed_;
  bool own_cores_;
  std::uint64_t number_ = 0;
  ModelledTotals totals_;
};

}  // namespace specdec
