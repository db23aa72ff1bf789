#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/error.h"
#include "backend/reference/reference_backend.h"

namespace specdec {

namespace {

/// keys and values [layers, kv_heads, capacity, head_dim]
class ReferenceKv final : public KvStore {
 public:
  explicit ReferenceKv(const KvShape& shape)
      : shape_(shape),
        keys_(static_cast<std::size_t>(shape.layers * shape.kv_heads * shape.capacity * shape.head_dim)),
        values_(keys_.size()) {}

  const KvShape& shape() const override { return shape_; }
  float* key(std::int64_t layer, std::int64_t head, std::int64_t slot) {
    return keys_.data() + offset(layer, head, slot);
  }
  float* value(std::int64_t layer, std::int64_t head, std::int64_t slot) {
    return values_.data() + offset(layer, head, slot);
  }
  const float* key(std::int64_t layer, std::int64_t head, std::int64_t slot) const {
    return keys_.data() + offset(layer, head, slot);
  }
  const float* value(std::int64_t layer, std::int64_t head, std::int64_t slot) const {
    return values_.data() + offset(layer, head, slot);
  }

 private:
  std::int64_t offset(std::int64_t layer, std::int64_t head, std::int64_t slot) const {
    check(slot >= 0 && slot < shape_.capacity, "slot outside the KV store");
    return ((layer * shape_.kv_heads + head) * shape_.capacity + slot) * shape_.head_dim;
  }

  KvShape shape_;
  std::vector<float> keys_;
  std::vector<float> values_;
};

/// The slots that row `row` sees, oldest first: all committed ones, its ancestors in this pass, itself.
std::vector<std::int64_t> visible_slots(const RowChain& chain, std::int64_t row) {
  std::vector<std::int64_t> path;
  for (std::int64_t r = row; r >= 0; r = chain.parent[r]) {
    path.insert(path.begin(), chain.first_slot + r);
  }
  std::vector<std::int64_t> slots;
  for (std::int64_t slot = 0; slot < chain.first_slot; ++slot) {
    slots.push_back(slot);
  }
  slots.insert(slots.end(), path.begin(), path.end());
  return slots;
}

}  // namespace

std::unique_ptr<KvStore> ReferenceBackend::make_kv(const KvShape& shape) {
  return std::make_unique<ReferenceKv>(shape);
}

void ReferenceBackend::kv_append(KvStore& kv, std::int64_t layer, const RowChain& chain, ConstRows keys,
                                 ConstRows values, Stream) {
  auto& store = dynamic_cast<ReferenceKv&>(kv);
  const std::int64_t dim = store.shape().head_dim;
  for (std::int64_t r = 0; r < keys.rows; ++r) {
    for (std::int64_t head = 0; head < store.shape().kv_heads; ++head) {
      for (std::int64_t i = 0; i < dim; ++i) {
        store.key(layer, head, chain.first_slot + r)[i] = keys.row(r)[head * dim + i];
        store.value(layer, head, chain.first_slot + r)[i] = values.row(r)[head * dim + i];
      }
    }
  }
}

void ReferenceBackend::kv_move(KvStore& kv, std::int64_t from, std::int64_t to, Stream) {
  auto& store = dynamic_cast<ReferenceKv&>(kv);
  for (std::int64_t layer = 0; layer < store.shape().layers; ++layer) {
    for (std::int64_t head = 0; head < store.shape().kv_heads; ++head) {
      for (std::int64_t i = 0; i < store.shape().head_dim; ++i) {
        store.key(layer, head, to)[i] = store.key(layer, head, from)[i];
        store.value(layer, head, to)[i] = store.value(layer, head, from)[i];
      }
    }
  }
}

void ReferenceBackend::attention(ConstRows q, const KvStore& kv, std::int64_t layer, const RowChain& chain,
                                 std::span<const std::int32_t> kv_head, float scale, Rows out, Stream) {
  const auto& store = dynamic_cast<const ReferenceKv&>(kv);
  const std::int64_t dim = store.shape().head_dim;
  for (std::int64_t r = 0; r < q.rows; ++r) {
    const std::vector<std::int64_t> slots = visible_slots(chain, r);
    for (std::size_t head = 0; head < kv_head.size(); ++head) {
      const float* query = q.row(r) + static_cast<std::int64_t>(head) * dim;
      float* result = out.row(r) + static_cast<std::int64_t>(head) * dim;

      std::vector<float> scores;
      float max = -std::numeric_limits<float>::infinity();
      for (const std::int64_t slot : slots) {
        const float* key = store.key(layer, kv_head[head], slot);
        float dot = 0;
        for (std::int64_t i = 0; i < dim; ++i) {
          dot += query[i] * key[i];
        }
        scores.push_back(scale * dot);
        max = std::max(max, scores.back());
      }

      float sum = 0;
      for (float& score : scores) {
        score = std::exp(score - max);
        sum += score;
      }
      for (std::int64_t i = 0; i < dim; ++i) {
        float mean = 0;
        for (std::size_t s = 0; s < slots.size(); ++s) {
          mean += scores[s] * store.value(layer, kv_head[head], slots[s])[i];
        }
        result[i] = mean / sum;
      }
    }
  }
}

}  // namespace specdec
