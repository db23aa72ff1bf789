// Attention against the reference and against itself: rows alone and together, chains and trees, threads, garbage in dropped slots.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/error.h"
#include "tests/support/roundoff.h"
#include "tests/unit/backend_fixture.h"

namespace specdec {
namespace {

using tests::kRoundoff;

/// A cache of one layer and the rows of a pass over it.
struct AttentionCase {
  std::int64_t kv_heads = 2;
  std::int64_t group = 1;  ///< query heads per KV head
  std::int64_t head_dim = 32;
  std::int64_t committed = 0;
  std::vector<std::int32_t> parent = {-1};
  std::int64_t spare = 0;  ///< capacity beyond what is used
  unsigned seed = 1;

  std::int64_t rows() const { return static_cast<std::int64_t>(parent.size()); }
  std::int64_t heads() const { return kv_heads * group; }
  std::int64_t slots() const { return committed + rows(); }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }
  std::vector<std::int32_t> kv_head() const {
    std::vector<std::int32_t> result(heads());
    for (std::int64_t h = 0; h < heads(); ++h) {
      result[h] = static_cast<std::int32_t>(h / group);
    }
    return result;
  }
  Matrix queries() const { return Matrix::random(rows(), heads() * head_dim, seed + 1, 2.0F, 3); }
  Matrix keys() const { return Matrix::random(slots(), kv_heads * head_dim, seed + 2, 1.0F, 1); }
  Matrix values() const { return Matrix::random(slots(), kv_heads * head_dim, seed + 3, 1.0F, 2); }
};

std::vector<std::int32_t> chain_of(std::int64_t rows) {
  std::vector<std::int32_t> parent(rows);
  std::iota(parent.begin(), parent.end(), -1);
  return parent;
}

/// Output [rows, heads * head_dim] of one pass over a fresh cache.
Matrix run(Backend& backend, const AttentionCase& c, const Matrix& q, const Matrix& keys, const Matrix& values) {
  const Stream stream;
  const auto kv = backend.make_kv({1, c.kv_heads, c.head_dim, c.slots() + c.spare});
  backend.kv_append(*kv, 0, {.first_slot = 0}, keys.view(), values.view(), stream);
  std::vector<std::int32_t> position(c.parent.size());
  Matrix out(c.rows(), c.heads() * c.head_dim, 1);
  backend.attention(q.view(), *kv, 0, {position, c.parent, c.committed}, c.kv_head(), c.scale(), out.view(), stream);
  return out;
}

Matrix run(Backend& backend, const AttentionCase& c) { return run(backend, c, c.queries(), c.keys(), c.values()); }

/// Bound on |mine - reference| for outputs that are means of values with weights exp(score - max): a relative error e of every weight
/// (scores: head_dim eps on |q||k| scale, on either side) moves a weighted mean of values within [-m, m] by at most 2 e m.
double bound(const AttentionCase& c) {
  double largest_score = 0;
  double largest_value = 0;
  const Matrix q = c.queries();
  const Matrix keys = c.keys();
  const Matrix values = c.values();
  const auto kv_head = c.kv_head();
  for (std::int64_t r = 0; r < c.rows(); ++r) {
    for (std::int64_t h = 0; h < c.heads(); ++h) {
      for (std::int64_t s = 0; s < c.slots(); ++s) {
        double size = 0;
        for (std::int64_t i = 0; i < c.head_dim; ++i) {
          size += std::abs(q.at(r, h * c.head_dim + i) * keys.at(s, kv_head[h] * c.head_dim + i));
        }
        largest_score = std::max(largest_score, size * c.scale());
      }
    }
  }
  for (const float v : values.all()) {
    largest_value = std::max(largest_value, static_cast<double>(std::abs(v)));
  }
  const double score_error = 2 * (static_cast<double>(c.head_dim) + 3) * kRoundoff * largest_score;
  const double weight_error = 2 * score_error + 8 * kRoundoff;
  const double sums = 2 * (static_cast<double>(c.slots()) + 8) * kRoundoff;
  return 2 * (weight_error + sums) * largest_value;
}

class CpuAttentionTest : public CpuBackendTest {
 protected:
  void expect_like_reference(const AttentionCase& c) {
    const Matrix mine = run(cpu, c);
    EXPECT_EQ(mine.all(), run(scalar, c).all()) << "other bits than the scalar form";
    const Matrix expected = run(reference, c);
    const double allowed = bound(c);
    for (std::int64_t r = 0; r < c.rows(); ++r) {
      for (std::int64_t i = 0; i < mine.cols(); ++i) {
        ASSERT_NEAR(mine.at(r, i), expected.at(r, i), allowed) << "row " << r << " column " << i;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Isas, CpuAttentionTest, testing::ValuesIn(all_isas()), isa_name);

TEST_P(CpuAttentionTest, EveryHeadSize) {
  for (const std::int64_t dim : {1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 64, 80, 97, 128, 255, 256}) {
    SCOPED_TRACE(dim);
    expect_like_reference({.head_dim = dim, .committed = 37, .parent = chain_of(5)});
  }
}

TEST_P(CpuAttentionTest, EveryLengthAroundABlock) {
  for (const std::int64_t committed : {0, 1, 14, 15, 16, 17, 48, 62, 63, 64, 65, 127, 128, 129, 300}) {
    for (const std::int64_t rows : {1, 2, 17}) {
      SCOPED_TRACE(testing::Message() << committed << " + " << rows);
      expect_like_reference({.head_dim = 24, .committed = committed, .parent = chain_of(rows)});
    }
  }
}

TEST_P(CpuAttentionTest, GroupedQueriesAndManyRows) {
  for (const std::int64_t group : {1, 2, 3, 4, 7}) {
    for (const std::int64_t rows : {1, 3, 16, 70}) {
      SCOPED_TRACE(testing::Message() << group << " x " << rows);
      expect_like_reference({.kv_heads = 3, .group = group, .head_dim = 16, .committed = 60, .parent = chain_of(rows)});
    }
  }
}

// However many queries read a block together, each has the bits of the scalar form, which takes them one by one.
TEST_P(CpuAttentionTest, EveryNumberOfRows) {
  for (std::int64_t rows = 1; rows <= 17; ++rows) {
    for (const std::int64_t head_dim : {32, 48}) {
      for (const std::int64_t committed : {0, 59, 64, 200}) {
        SCOPED_TRACE(testing::Message() << committed << " + " << rows << ", " << head_dim);
        expect_like_reference({.head_dim = head_dim, .committed = committed, .parent = chain_of(rows)});
      }
    }
  }
}

TEST_P(CpuAttentionTest, Trees) {
  const std::vector<std::vector<std::int32_t>> trees = {
      {-1, -1, -1}, {-1, 0, 0, 1, 1, 2}, {-1, -1, 0, 2, 1, 4, 3, 3}, {-1, 0, 1, 1, 1, 4, 5, 0}};
  for (const auto& parent : trees) {
    for (const std::int64_t committed : {0, 5, 59, 61, 64}) {
      SCOPED_TRACE(committed);
      expect_like_reference({.group = 2, .head_dim = 20, .committed = committed, .parent = parent});
    }
  }
}

TEST_P(CpuAttentionTest, ARankWithoutHeadsHasNothingToDo) {
  const auto kv = cpu.make_kv({2, 0, 32, 100});
  const Matrix none(3, 0, 1);
  Matrix out(3, 0, 1);
  cpu.kv_append(*kv, 1, {.first_slot = 0}, none.view(), none.view(), stream);
  cpu.kv_move(*kv, 2, 0, stream);
  const std::vector<std::int32_t> position(3);
  const auto parent = chain_of(3);
  cpu.attention(none.view(), *kv, 1, {position, parent, 0}, {}, 1.0F, out.view(), stream);
}

TEST_P(CpuAttentionTest, ARowAloneHasTheBitsOfARowAmongMany) {
  for (const std::int64_t group : {1, 3}) {
    const AttentionCase block{.group = group, .head_dim = 40, .committed = 55, .parent = chain_of(16)};
    const Matrix q = block.queries();
    const Matrix keys = block.keys();
    const Matrix values = block.values();
    const Matrix together = run(cpu, block);
    for (std::int64_t r = 0; r < block.rows(); ++r) {
      AttentionCase alone = block;
      alone.committed += r;
      alone.parent = {-1};
      alone.spare = block.rows() - 1 - r;
      Matrix row(1, q.cols());
      std::copy_n(q.view().row(r), q.cols(), row.data());

      const Matrix out = run(cpu, alone, row, keys, values);  // slots after r are in the cache, and not seen
      EXPECT_EQ(out.row(0), together.row(r)) << r;
    }
  }
}

TEST_P(CpuAttentionTest, WhatLiesInDroppedSlotsDoesNotMatter) {
  const AttentionCase c{.group = 2, .head_dim = 17, .committed = 70, .parent = {-1, 0, 0, 2}, .spare = 20};
  const Matrix clean = run(cpu, c);
  const std::vector<float> poisons = {1e30F, -1e30F, std::numeric_limits<float>::quiet_NaN(),
                                      std::numeric_limits<float>::infinity()};
  for (const float poison : poisons) {
    const auto kv = cpu.make_kv({1, c.kv_heads, c.head_dim, c.slots() + c.spare});
    Matrix garbage(c.slots() + c.spare, c.kv_heads * c.head_dim);
    std::fill_n(garbage.data(), garbage.all().size(), poison);
    cpu.kv_append(*kv, 0, {.first_slot = 0}, garbage.view(), garbage.view(), stream);
    cpu.kv_append(*kv, 0, {.first_slot = 0}, c.keys().view(), c.values().view(), stream);
    const std::vector<std::int32_t> position(c.parent.size());
    Matrix out(c.rows(), c.heads() * c.head_dim, 1);
    const Matrix q = c.queries();
    cpu.attention(q.view(), *kv, 0, {position, c.parent, c.committed}, c.kv_head(), c.scale(), out.view(), stream);
    EXPECT_EQ(out.all(), clean.all()) << poison;
  }
}

// A weight of zero would not do: zero times a later row's infinity is no number.
TEST_P(CpuAttentionTest, WhatLaterRowsHoldDoesNotMatter) {
  for (std::int64_t rows = 2; rows <= 17; ++rows) {
    for (const std::int64_t committed : {0, 57, 60, 63, 130}) {
      SCOPED_TRACE(testing::Message() << committed << " + " << rows);
      const AttentionCase c{.head_dim = 35, .committed = committed, .parent = chain_of(rows)};
      const Matrix q = c.queries();
      const Matrix clean_keys = c.keys();
      const Matrix clean_values = c.values();
      const Matrix clean = run(cpu, c, q, clean_keys, clean_values);
      for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        for (std::int64_t first = 1; first < rows; ++first) {
          Matrix keys = clean_keys;
          Matrix values = clean_values;
          for (std::int64_t slot = committed + first; slot < c.slots(); ++slot) {
            std::fill_n(keys.view().row(slot), keys.cols(), poison);
            std::fill_n(values.view().row(slot), values.cols(), poison);
          }
          const Matrix out = run(cpu, c, q, keys, values);
          for (std::int64_t r = 0; r < first; ++r) {
            ASSERT_EQ(out.row(r), clean.row(r)) << "row " << r << " and " << poison << " from row " << first << " on";
          }
        }
      }
    }
  }
}

TEST_P(CpuAttentionTest, ATreeGivesTheBitsOfTheChainOfAncestors) {
  // Across a block boundary, with branches in between.
  const AttentionCase tree{.group = 2, .head_dim = 19, .committed = 61, .parent = {-1, -1, 0, 1, 2, 2, 4, 3}};
  const Matrix q = tree.queries();
  const Matrix keys = tree.keys();
  const Matrix values = tree.values();
  const Matrix out = run(cpu, tree);
  for (std::int64_t r = 0; r < tree.rows(); ++r) {
    std::vector<std::int64_t> path;
    for (std::int64_t a = r; a >= 0; a = tree.parent[a]) {
      path.insert(path.begin(), a);
    }
    AttentionCase chain = tree;
    chain.parent = chain_of(static_cast<std::int64_t>(path.size()));
    Matrix chain_q(chain.rows(), q.cols());
    Matrix chain_keys(chain.slots(), keys.cols());
    Matrix chain_values(chain.slots(), values.cols());
    const auto copy_row = [](const Matrix& from, std::int64_t source, Matrix& to, std::int64_t target) {
      std::copy_n(from.view().row(source), from.cols(), to.view().row(target));
    };
    for (std::int64_t s = 0; s < tree.committed; ++s) {
      copy_row(keys, s, chain_keys, s);
      copy_row(values, s, chain_values, s);
    }
    for (std::size_t i = 0; i < path.size(); ++i) {
      const std::int64_t at = tree.committed + static_cast<std::int64_t>(i);
      copy_row(q, path[i], chain_q, static_cast<std::int64_t>(i));
      copy_row(keys, tree.committed + path[i], chain_keys, at);
      copy_row(values, tree.committed + path[i], chain_values, at);
    }
    const Matrix expected = run(cpu, chain, chain_q, chain_keys, chain_values);
    EXPECT_EQ(out.row(r), expected.row(chain.rows() - 1)) << r;
  }
}

TEST_P(CpuAttentionTest, MovingASlotMovesItsKeyAndValue) {
  const AttentionCase c{.head_dim = 21, .committed = 66, .parent = {-1}};
  const auto kv = cpu.make_kv({1, c.kv_heads, c.head_dim, 90});
  const Matrix keys = c.keys();
  const Matrix values = c.values();
  cpu.kv_append(*kv, 0, {.first_slot = 0}, keys.view(), values.view(), stream);
  // Slot 66's contents go by way of slot 80 over what was written there in between.
  cpu.kv_move(*kv, 66, 80, stream);
  cpu.kv_append(*kv, 0, {.first_slot = 66}, keys.view().slice_rows(0, 1), values.view().slice_rows(0, 1), stream);
  cpu.kv_move(*kv, 80, 66, stream);
  const std::vector<std::int32_t> position(1);
  Matrix out(1, c.heads() * c.head_dim, 1);
  const Matrix q = c.queries();
  cpu.attention(q.view(), *kv, 0, {position, c.parent, c.committed}, c.kv_head(), c.scale(), out.view(), stream);
  EXPECT_EQ(out.all(), run(cpu, c).all());
}

TEST_P(CpuAttentionTest, LayersAreApart) {
  const AttentionCase c{.head_dim = 8, .committed = 10, .parent = chain_of(2)};
  const auto kv = cpu.make_kv({3, c.kv_heads, c.head_dim, c.slots()});
  const Matrix other = Matrix::random(c.slots(), c.kv_heads * c.head_dim, 99);
  cpu.kv_append(*kv, 1, {.first_slot = 0}, c.keys().view(), c.values().view(), stream);
  cpu.kv_append(*kv, 0, {.first_slot = 0}, other.view(), other.view(), stream);
  cpu.kv_append(*kv, 2, {.first_slot = 0}, other.view(), other.view(), stream);
  const std::vector<std::int32_t> position(2);
  Matrix out(c.rows(), c.heads() * c.head_dim, 1);
  const Matrix q = c.queries();
  cpu.attention(q.view(), *kv, 1, {position, c.parent, c.committed}, c.kv_head(), c.scale(), out.view(), stream);
  EXPECT_EQ(out.all(), run(cpu, c).all());
}

TEST_P(CpuAttentionTest, ThreadsChangeNoBit) {
  for (const std::int64_t kv_heads : {1, 3}) {
    AttentionCase c{.kv_heads = kv_heads, .group = 3, .head_dim = 64, .committed = 200, .parent = chain_of(9)};
    for (int threads = 2; threads <= 4; ++threads) {
      CpuBackend team(GetParam(), threads);
      EXPECT_EQ(run(team, c).all(), run(cpu, c).all()) << threads;
      c.parent[4] = 1;  // and a tree
    }
  }
}

TEST_P(CpuAttentionTest, RefusesWhatIsNoTreeAndWhatDoesNotFit) {
  EXPECT_THROW(run(cpu, {.parent = {0}}), Error);
  EXPECT_THROW(run(cpu, {.parent = {-1, 2, 1}}), Error);
  EXPECT_THROW(run(cpu, {.parent = {-2}}), Error);
  EXPECT_THROW(run(cpu, {.parent = {-1, -1}, .spare = -1}), Error);
}

}  // namespace
}  // namespace specdec
