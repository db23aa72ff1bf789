#include "parallel/tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/same_bits.h"

namespace specdec {
namespace {

using tests::same_bits;

/// The tree as a formula.
std::string formula(int leaves) {
  std::vector<std::string> places;
  places.reserve(leaves);
  for (int i = 0; i < leaves; ++i) {
    places.push_back(std::to_string(i));
  }
  tree_fold(leaves, [&](int into, int from) {
    std::string sum = "(";
    sum += places[into] + "+" + places[from] + ")";
    places[into] = sum;
  });
  return places[0];
}

std::vector<float> random_leaves(std::size_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) {
    value = std::ldexp(normal(generator), static_cast<int>(generator() % 20));
  }
  return values;
}

std::vector<float> tree_sum_of(const std::vector<std::vector<float>>& leaves) {
  const std::vector<std::span<const float>> views(leaves.begin(), leaves.end());
  std::vector<float> sum(leaves[0].size());
  tree_sum(views, sum);
  return sum;
}

TEST(Tree, NearestNeighboursFirst) {
  EXPECT_EQ(formula(1), "0");
  EXPECT_EQ(formula(2), "(0+1)");
  EXPECT_EQ(formula(3), "((0+1)+2)");
  EXPECT_EQ(formula(4), "((0+1)+(2+3))");
  EXPECT_EQ(formula(5), "(((0+1)+(2+3))+4)");
  EXPECT_EQ(formula(6), "(((0+1)+(2+3))+(4+5))");
  EXPECT_EQ(formula(7), "(((0+1)+(2+3))+((4+5)+6))");
  EXPECT_EQ(formula(8), "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

TEST(Tree, HandValuesThatTellOrdersApart) {
  // 2^24 + 1 is rounded to even: only sums in this order give these results.
  const float big = 16777216.0F;
  EXPECT_EQ(tree_sum_of({{big}, {1}, {1}, {-big}})[0], -big + 1 + big);  // (big + 1) + (1 - big) = big + -(big - 1)
  EXPECT_EQ(tree_sum_of({{big}, {-big}, {1}, {1}})[0], 2.0F);
  EXPECT_EQ(tree_sum_of({{1}, {1}, {big}, {0}})[0], big + 2.0F);
  EXPECT_EQ(tree_sum_of({{big}, {1}, {1}})[0], big);
  EXPECT_EQ(tree_sum_of({{1}, {1}, {big}})[0], big + 2.0F);
}

TEST(Tree, NegativeZeroIsTheIdentityAndSurvives) {
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  for (int leaves = 1; leaves <= 9; ++leaves) {
    EXPECT_EQ(bits(tree_sum_of(std::vector<std::vector<float>>(leaves, {-0.0F}))[0]), 0x80000000U) << leaves;
    for (int place = 0; place < leaves; ++place) {
      for (const float value : {0.0F, -0.0F, 1.5F, -0x1p-126F, INFINITY}) {
        std::vector<std::vector<float>> values(leaves, {-0.0F});
        values[place][0] = value;
        EXPECT_EQ(bits(tree_sum_of(values)[0]), bits(value)) << leaves << " " << place;
      }
    }
  }
}

TEST(Tree, SubtreesAddUpToTheWhole) {
  // 16 canonical slices, folded on each of 1, 2, 4, 8 ranks and then over the ranks: the same bits.
  std::vector<std::vector<float>> slices;
  for (unsigned s = 0; s < 16; ++s) {
    slices.push_back(random_leaves(257, s));
  }
  const std::vector<float> whole = tree_sum_of(slices);
  for (const int ranks : {2, 4, 8, 16}) {
    std::vector<std::vector<float>> partial;
    for (int r = 0; r < ranks; ++r) {
      const int each = 16 / ranks;
      partial.push_back(tree_sum_of({slices.begin() + r * each, slices.begin() + (r + 1) * each}));
    }
    EXPECT_TRUE(same_bits(tree_sum_of(partial), whole)) << ranks;
  }
}

TEST(Tree, MissingLeavesAreTheIdentity) {
  for (const int leaves : {3, 5, 6, 7, 11}) {
    std::vector<std::vector<float>> values;
    for (int i = 0; i < leaves; ++i) {
      values.push_back(random_leaves(100, static_cast<unsigned>(i)));
    }
    const std::vector<float> sum = tree_sum_of(values);
    values.resize(std::bit_ceil(static_cast<unsigned>(leaves)), std::vector<float>(100, -0.0F));
    EXPECT_TRUE(same_bits(sum, tree_sum_of(values))) << leaves;
  }
}

template <typename T>
void expect_the_tree(int leaves, std::size_t size, const std::function<T(float)>& make) {
  std::vector<std::vector<T>> values;
  for (int r = 0; r < leaves; ++r) {
    std::vector<T>& leaf = values.emplace_back();
    std::ranges::transform(random_leaves(size, static_cast<unsigned>(r)), std::back_inserter(leaf), make);
  }
  const std::vector<std::span<const T>> views(values.begin(), values.end());
  std::vector<T> sum(size);
  tree_sum(views, sum);
  tree_fold(leaves, [&](int into, int from) {
    std::ranges::transform(values[into], values[from], values[into].begin(),
                           [](T lower, T upper) { return add_in_tree(lower, upper); });
  });
  EXPECT_EQ(std::memcmp(sum.data(), values[0].data(), size * sizeof(T)), 0) << leaves << " leaves of " << size;
}

TEST(Tree, ManyLeavesOfManyElements) {
  for (const int leaves : {2, 7, 8, 9, 12, 16, 17, 63, 64, 65, 200, kMaxLeaves}) {
    for (const std::size_t size : {1, 15, 16, 63, 64, 65, 200}) {
      expect_the_tree<float>(leaves, size, [](float value) { return value; });
      expect_the_tree<BF16>(leaves, size, [](float value) { return BF16{float_to_bf16(value)}; });
    }
  }
}

TEST(Tree, StepsCarryTheTreeToEveryRank) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    std::vector<std::vector<TreeStep>> steps;
    std::vector<std::string> held;
    steps.reserve(ranks);
    held.reserve(ranks);
    for (int r = 0; r < ranks; ++r) {
      steps.push_back(tree_steps(r, ranks));
      held.push_back(std::to_string(r));
    }
    // Ranks may skip a level, so each runs as soon as what it needs has been sent; a pair's messages keep their order.
    std::map<std::pair<int, int>, std::vector<std::string>> mail;
    std::vector<std::size_t> sent(ranks), received(ranks);
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < ranks; ++r) {
        if (sent[r] == received[r] && sent[r] < steps[r].size()) {
          for (const int to : steps[r][sent[r]].destinations) {
            mail[{r, to}].push_back(held[r]);
          }
          ++sent[r];
          moved = true;
        }
        if (received[r] < sent[r]) {
          const TreeStep& step = steps[r][received[r]];
          auto& box = mail[{step.source, r}];
          if (!box.empty()) {
            std::string sum = "(";
            sum += step.source_is_upper ? held[r] + "+" + box.front() : box.front() + "+" + held[r];
            held[r] = sum + ")";
            box.erase(box.begin());
            ++received[r];
            moved = true;
          }
        }
      }
    }
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(held[r], formula(ranks)) << r << " of " << ranks;
    }
    for (const auto& [pair, box] : mail) {
      EXPECT_TRUE(box.empty()) << pair.first << " -> " << pair.second << " of " << ranks;
    }
  }
}

}  // namespace
}  // namespace specdec
