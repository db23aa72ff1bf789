#include "backend/cuda/tensor_layout.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cuda/sum_tree.h"

namespace specdec::cuda {
namespace {

TEST(TensorOrder, LeavesCoverEverySliceInOrder) {
  const std::vector<Range> slices = {{0, 16}, {16, 16}, {16, 1000}, {1000, 20'000}};
  const TensorOrder order(slices);
  EXPECT_FALSE(order.even());
  ASSERT_EQ(order.slices().size(), slices.size());
  std::int64_t step = 0;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const std::vector<std::int64_t>& leaves = order.slices()[s];
    EXPECT_TRUE(std::has_single_bit(leaves.size())) << s;
    EXPECT_LE(std::ssize(leaves), TensorOrder::kMaxLeaves);
    step += std::accumulate(leaves.begin(), leaves.end(), std::int64_t{0});
    const Step& last = order.steps()[step == 0 ? 0 : step - 1];
    EXPECT_EQ(last.first_input + last.inputs, slices[s].end);
  }
  EXPECT_EQ(step, std::ssize(order.steps()));
}

TEST(TensorOrder, PartsShareTheStepsOfALayer) {
  // A layer of 4096 inputs, and a row-parallel one of 14336 in its 16 slices.
  std::vector<Range> slices;
  for (std::int64_t i = 0; i < 16; ++i) {
    slices.push_back({i * 896, (i + 1) * 896});
  }
  for (const TensorOrder& order : {TensorOrder({{0, 4096}}), TensorOrder(slices)}) {
    EXPECT_TRUE(order.even());
    for (const int warps : {1, 2, 8, 16}) {
      const TensorCut cut = order.cut(warps);
      ASSERT_EQ(std::ssize(cut.parts), warps);
      std::int32_t step = 0;
      std::int32_t leaf = 0;
      for (const Part& part : cut.parts) {
        EXPECT_EQ(part.first_step, step);
        EXPECT_EQ(part.first_leaf, leaf);
        EXPECT_EQ(part.steps, std::ssize(order.steps()) / warps);
        step += part.steps;
        leaf += part.leaves;
      }
      EXPECT_EQ(leaf, std::ssize(cut.leaves));
    }
  }
  EXPECT_EQ(TensorOrder({{0, 4096}}).cut(8).stack, 1);
  EXPECT_EQ(TensorOrder(slices).cut(8).stack, 3);
}

TEST(TileOutputs, EveryOutputHasOnePlaceAndAPairOneTile) {
  for (const std::int64_t pairs : {1, 8, 9, 16, 21}) {
    for (const TileOutputs& outputs : {TileOutputs{2 * pairs}, TileOutputs{2 * pairs, true}}) {
      std::vector<int> places(static_cast<std::size_t>(outputs.count));
      for (std::int64_t tile = 0; tile < outputs.tiles(); ++tile) {
        for (std::int64_t place = 0; place < kTileOutputs; ++place) {
          const std::int64_t output = outputs.at(tile, place);
          if (output < outputs.count) {
            ++places[output];
          }
          if (outputs.gated && place < kTileOutputs / 2 && output < outputs.count) {
            EXPECT_LT(output, pairs);
            EXPECT_EQ(outputs.at(tile, place + kTileOutputs / 2), output + pairs);
          }
        }
      }
      EXPECT_EQ(places, std::vector<int>(places.size(), 1)) << pairs << " pairs, gated: " << outputs.gated;
      EXPECT_GE(outputs.at(outputs.tiles(), 0), outputs.count);
    }
  }
}

/// The tree as it is written with brackets, from any cut of it.
std::string written(const SumTree& tree, int parts, const std::vector<std::int64_t>& cost) {
  std::vector<std::string> outer;
  const auto close = [](std::vector<std::string>& stack, int merges) {
    for (; merges > 0; --merges) {
      const std::string right = stack.back();
      stack.pop_back();
      stack.back() = "(" + stack.back() + right + ")";
    }
  };
  for (const SumTree::Part& part : tree.cut(parts, cost)) {
    std::vector<std::string> inner;
    const std::vector<int> merges = tree.merges_within(part);
    EXPECT_EQ(std::ssize(merges), part.leaves);
    for (int i = 0; i < part.leaves; ++i) {
      inner.push_back(std::string(1, static_cast<char>('a' + part.first + i)));
      close(inner, merges[i]);
    }
    EXPECT_EQ(inner.size(), 1U);
    outer.push_back(inner.front());
    close(outer, part.merges);
  }
  EXPECT_EQ(outer.size(), 1U);
  return outer.front();
}

TEST(SumTree, IsTheSameHoweverItIsCut) {
  const std::vector<int> slices = {1, 4, 2, 1, 1};
  const SumTree tree(slices);
  ASSERT_EQ(tree.leaves(), 9);
  for (const std::vector<std::int64_t>& cost :
       {std::vector<std::int64_t>(9, 1), std::vector<std::int64_t>{9, 1, 1, 1, 1, 5, 5, 0, 20}}) {
    for (int parts = 1; parts <= 10; ++parts) {
      EXPECT_EQ(written(tree, parts, cost), "(((a((bc)(de)))((fg)h))i)") << parts;
      EXPECT_LE(std::ssize(tree.cut(parts, cost)), parts);
    }
  }
}

TEST(SumTree, WhatCostsMostIsCutFirst) {
  const std::vector<int> slices = {1, 1, 1, 1};
  const std::vector<SumTree::Part> parts = SumTree(slices).cut(3, std::vector<std::int64_t>{1, 1, 1, 9});
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].leaves, 2);
  EXPECT_EQ(parts[1].leaves, 1);
}

}  // namespace
}  // namespace specdec::cuda
