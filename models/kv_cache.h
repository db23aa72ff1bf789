#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.h"

namespace specdec {

/// The keys and values of one sequence. Tokens are appended, then a path of them is committed; truncation is committing a
/// prefix, and rollback happens nowhere else.
class KvCache {
 public:
  KvCache(Backend& backend, const KvShape& shape);

  /// Committed tokens; the next pass writes to slots committed() + pending().
  std::int64_t committed() const { return committed_; }
  /// Rows appended since the last commit.
  std::int64_t pending() const { return pending_; }
  std::int64_t capacity() const { return store_->shape().capacity; }

  /// Makes room for `rows` rows and returns the first one's slot. Throws kInternal when they do not fit.
  std::int64_t append(std::int64_t rows);
  /// Keeps the pending rows that `path` names (ascending, as indices into the pending rows), in order, and drops the others.
  void commit(std::span<const std::int32_t> path, Stream stream);
  /// Keeps the first `count` pending rows; of those behind them the next `pending` stay pending, and the others are dropped.
  void commit_prefix(std::int64_t count, std::int64_t pending = 0);
  /// Forgets everything: a new sequence.
  void clear();

  KvStore& store() { return *store_; }

 private:
  Backend& backend_;
  std::unique_ptr<KvStore> store_;
  std::int64_t committed_ = 0;
  std::int64_t pending_ = 0;
};

}  // namespace specdec
