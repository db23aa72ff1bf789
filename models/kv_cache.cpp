#include "models/kv_cache.h"

#include "backend/error.h"

namespace specdec {

KvCache::KvCache(Backend& backend, const KvShape& shape) : backend_(backend), store_(backend.make_kv(shape)) {}

std::int64_t KvCache::append(std::int64_t rows) {
  const std::int64_t first = committed_ + pending_;
  check(first + rows <= capacity(), "KvCache: append beyond its capacity");
  pending_ += rows;
  return first;
}

void KvCache::commit(std::span<const std::int32_t> path, Stream stream) {
  std::int64_t to = committed_;
  std::int64_t previous = -1;
  for (const std::int32_t row : path) {
    check(row > previous && row < pending_, "KvCache: a committed path must ascend within the pending rows");
    if (committed_ + row != to) {
      backend_.kv_move(*store_, committed_ + row, to, stream);
    }
    previous = row;
    ++to;
  }
  committed_ = to;
  pending_ = 0;
}

void KvCache::commit_prefix(std::int64_t count, std::int64_t pending) {
  check(0 <= count && 0 <= pending && count + pending <= pending_, "KvCache: commit of more rows than are pending");
  committed_ += count;
  pending_ = pending;
}

void KvCache::clear() {
  committed_ = 0;
  pending_ = 0;
}

}  // namespace specdec
