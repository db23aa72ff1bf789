#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "models/config.h"
#include "runtime/fingerprint.h"
#include "runtime/round.h"

namespace specdec {

/// One rank's own account of what all ranks must agree on, compared once a round with what rank 0 says of itself
/// (docs/protocol.md, "Agreement"). It is built from what this rank has really put into its cache, so a rank that has gone astray
/// finds out before it scores another row. Allocates nothing.
class Agreement {
 public:
  /// `configuration`: hash of all that this rank was set up with (configuration_hash.h); none: nothing is compared.
  explicit Agreement(std::optional<std::uint64_t> configuration) : configuration_(configuration) {}

  /// For rank 0 to send.
  std::uint64_t configuration() const { return configuration_.value_or(0); }

  /// A new sequence: these tokens are in the cache.
  void begin(std::span<const Token> cached);
  /// These tokens of the last pass stand and are in the cache too.
  void commit(std::span<const Token> tokens);
  /// This rank has decided by itself that so many rows of the last pass stand.
  void expect_kept(std::int64_t rows) { expected_kept_ = rows; }

  /// Throws Disagreement, naming what differs, unless `round` is whole, meant for this configuration, and keeps the rows that this rank
  /// has kept. Before anything is done with it.
  void check_round(const Round& round) const;
  /// The same unless this rank's cache, which holds `cached` tokens, is rank 0's. After the commit that a kScore orders.
  void check_cache(const Round& round, std::int64_t cached) const;

 private:
  std::optional<std::uint64_t> configuration_;
  RunningHash history_;
  std::optional<std::int64_t> expected_kept_;
};

}  // namespace specdec
