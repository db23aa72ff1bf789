#include "runtime/interconnect_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace specdec {
namespace {

void expect_same(const Link& found, const Link& expected) {
  EXPECT_EQ(found.algorithm, expected.algorithm);
  EXPECT_EQ(found.latency, expected.latency);
  EXPECT_EQ(found.bandwidth, expected.bandwidth);
}

/// Through text, as rank 0 sends it to the others.
InterconnectChoice there_and_back(const InterconnectChoice& choice) {
  return interconnect_from_json(nlohmann::json::parse(interconnect_json(choice).dump()));
}

TEST(InterconnectJson, EveryParameterSurvivesToTheLastBit) {
  for (const LinkAlgorithm algorithm : {LinkAlgorithm::kRing, LinkAlgorithm::kTree, LinkAlgorithm::kOneShot}) {
    const Interconnect model{.name = "a name",
                             .source = "a source",
                             .link = {.algorithm = algorithm, .latency = 1e-6 / 3, .bandwidth = 1e9 / 7},
                             .node = Link{.algorithm = LinkAlgorithm::kRing, .latency = 0.1e-6, .bandwidth = 3e9 / 7},
                             .ranks_per_node = 3,
                             .ranks = 12,
                             .overhead = 1e-6 / 9,
                             .multiplier = 1.1,
                             .jitter = {.sigma = 0.3, .tail_probability = 1.0 / 3, .tail_mean = 1e-5 / 3}};
    const InterconnectChoice back = there_and_back(model);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->name, model.name);
    EXPECT_EQ(back->source, model.source);
    expect_same(back->link, model.link);
    ASSERT_TRUE(back->node);
    expect_same(*back->node, *model.node);
    EXPECT_EQ(back->ranks_per_node, model.ranks_per_node);
    EXPECT_EQ(back->ranks, model.ranks);
    EXPECT_EQ(back->overhead, model.overhead);
    EXPECT_EQ(back->multiplier, model.multiplier);
    EXPECT_EQ(back->jitter.sigma, model.jitter.sigma);
    EXPECT_EQ(back->jitter.tail_probability, model.jitter.tail_probability);
    EXPECT_EQ(back->jitter.tail_mean, model.jitter.tail_mean);
  }
}

TEST(InterconnectJson, WithoutNodesAndNative) {
  EXPECT_FALSE(there_and_back(Interconnect{.name = "flat"})->node);
  EXPECT_FALSE(there_and_back(Interconnect{.name = "flat"})->ranks);
  EXPECT_FALSE(there_and_back(std::nullopt));
}

TEST(InterconnectJson, Labels) {
  EXPECT_EQ(label_of(std::nullopt), "native");
  EXPECT_EQ(label_of(Interconnect{.name = "x"}), "modelled x");
  EXPECT_EQ(name_of(InterconnectChoice{}), "native");
}

}  // namespace
}  // namespace specdec
