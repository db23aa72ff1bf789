// Where the rows of a pass lie in the cache: the layout that cpu_kv.h promises to attention, whole blocks and parts of them.
#include "backend/cpu/cpu_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "backend/cpu/huge_pages.h"
#include "tests/support/resident.h"
#include "tests/unit/backend_fixture.h"

namespace specdec {
namespace {

using tests::resident;

constexpr std::int64_t kLayerCount = 2;
constexpr std::int64_t kLayer = 1;
constexpr std::int64_t kKvHeads = 3;
constexpr std::int64_t kHeadDim = 19;
constexpr std::int64_t kCapacity = 200;

float key_of(const CpuKv& kv, std::int64_t layer, std::int64_t head, std::int64_t slot, std::int64_t i) {
  return kv.keys(layer, head, slot / kKeyBlock)[i * kKeyBlock + slot % kKeyBlock];
}

float value_of(const CpuKv& kv, std::int64_t layer, std::int64_t head, std::int64_t slot, std::int64_t i) {
  return kv.values(layer, head, slot / kKeyBlock)[slot % kKeyBlock * padded_head_dim(kHeadDim) + i];
}

/// Rows `first` to `first + rows` hold `keys` and `values`; all else is zero.
void expect_only(const CpuKv& kv, std::int64_t first, const Matrix& keys, const Matrix& values) {
  for (std::int64_t layer = 0; layer < kLayerCount; ++layer) {
    for (std::int64_t head = 0; head < kKvHeads; ++head) {
      for (std::int64_t slot = 0; slot < kCapacity; ++slot) {
        const std::int64_t row = slot - first;
        const bool written = layer == kLayer && 0 <= row && row < keys.rows();
        for (std::int64_t i = 0; i < padded_head_dim(kHeadDim); ++i) {
          const bool padding = i >= kHeadDim;
          const float value = written && !padding ? values.at(row, head * kHeadDim + i) : 0.0F;
          ASSERT_EQ(value_of(kv, layer, head, slot, i), value) << layer << " " << head << " " << slot << " " << i;
          if (!padding) {
            const float key = written ? keys.at(row, head * kHeadDim + i) : 0.0F;
            ASSERT_EQ(key_of(kv, layer, head, slot, i), key) << layer << " " << head << " " << slot << " " << i;
          }
        }
      }
    }
  }
}

TEST(CpuKv, RowsLieWhereAttentionReadsThem) {
  for (const std::int64_t first : {0, 1, 55, 62, 63, 64}) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 8, 9, 17, 64, 65, 130}) {
      SCOPED_TRACE(testing::Message() << rows << " rows from slot " << first);
      CpuKv kv({kLayerCount, kKvHeads, kHeadDim, kCapacity});
      // With a stride: rows of keys and values are parts of the rows of one product.
      const Matrix keys = Matrix::random(rows, kKvHeads * kHeadDim, 1, 1.0F, 5);
      const Matrix values = Matrix::random(rows, kKvHeads * kHeadDim, 2, 1.0F, 7);
      kv.append(kLayer, first, keys.view(), values.view());
      expect_only(kv, first, keys, values);
    }
  }
}

TEST(CpuKv, ALongContextCostsMemoryOnlyAsFarAsItIsFilled) {
  constexpr std::int64_t kLong = 1 << 16;
  CpuKv kv({kLayerCount, kKvHeads, kHeadDim, kLong});
  const std::size_t of_block = kLayerCount * kKvHeads * key_block_size(kHeadDim) * sizeof(float);
  const std::size_t bytes = kLong / kKeyBlock * of_block;
  EXPECT_EQ(resident(kv.keys(0, 0, 0), bytes), 0U);
  const std::int64_t filled = 3 * kKeyBlock;
  const Matrix rows = Matrix::random(filled, kKvHeads * kHeadDim, 1);
  for (std::int64_t layer = 0; layer < kLayerCount; ++layer) {
    kv.append(layer, 0, rows.view(), rows.view());
  }
  const std::size_t in_memory = resident(kv.keys(0, 0, 0), bytes);
  EXPECT_GE(in_memory, 3 * of_block);
  EXPECT_LE(in_memory, 3 * of_block + 2 * huge_pages::kPageBytes);
}

TEST(CpuKv, AMovedSlotLeavesTheOthersAlone) {
  CpuKv kv({kLayerCount, kKvHeads, kHeadDim, kCapacity});
  const Matrix keys = Matrix::random(3, kKvHeads * kHeadDim, 1);
  const Matrix values = Matrix::random(3, kKvHeads * kHeadDim, 2);
  kv.append(kLayer, 62, keys.view(), values.view());
  kv.move(64, 63);
  Matrix moved_keys = keys;
  Matrix moved_values = values;
  std::copy_n(keys.view().row(2), keys.cols(), moved_keys.view().row(1));
  std::copy_n(values.view().row(2), values.cols(), moved_values.view().row(1));
  expect_only(kv, 62, moved_keys, moved_values);
}

}  // namespace
}  // namespace specdec
