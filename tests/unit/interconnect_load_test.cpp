// The presets, and what is said about files that are none.

#include "runtime/interconnect_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "runtime/config_load.h"
#include "tests/support/bad_input.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using tests::bad_input;
using tests::TemporaryDirectory;

const std::filesystem::path kPresets = std::filesystem::path(SPECDEC_SOURCE_DIR) / "configs" / "interconnects";

Interconnect preset(const std::string& name) {
  return load_interconnect((kPresets / (name + ".yaml")).string(), "test");
}

std::string error_in_file(const std::string& yaml) {
  return bad_input([&] { parse_interconnect(yaml, "net.yaml", "net"); });
}

/// `changes` on top of a file that is right.
std::string file_with(const std::map<std::string, std::string>& changes) {
  std::map<std::string, std::string> keys = {
      {"source", "a book"}, {"algorithm", "ring"}, {"latency_us", "2"}, {"bandwidth_GBps", "10"}};
  for (const auto& [key, value] : changes) {
    keys[key] = value;
  }
  std::string yaml;
  for (const auto& [key, value] : keys) {
    if (value != "-") {
      yaml += key + ": " + value + "\n";
    }
  }
  return yaml;
}

TEST(InterconnectLoad, EveryKeyArrivesInSecondsAndBytes) {
  const Interconnect read =
      parse_interconnect(file_with({{"name", "mine"},
                                    {"overhead_us", "1.5"},
                                    {"multiplier", "1.25"},
                                    {"ranks", "32"},
                                    {"ranks_per_node", "8"},
                                    {"node", "{algorithm: one-shot, latency_us: 0.5, bandwidth_GBps: 300}"},
                                    {"jitter", "{sigma: 0.1, tail_probability: 0.01, tail_mean_us: 250}"}}),
                         "net.yaml", "net");
  EXPECT_EQ(read.name, "mine");
  EXPECT_EQ(read.source, "a book");
  EXPECT_EQ(read.link.algorithm, LinkAlgorithm::kRing);
  EXPECT_DOUBLE_EQ(read.link.latency, 2e-6);
  EXPECT_DOUBLE_EQ(read.link.bandwidth, 10e9);
  EXPECT_DOUBLE_EQ(read.overhead, 1.5e-6);
  EXPECT_DOUBLE_EQ(read.multiplier, 1.25);
  EXPECT_EQ(read.ranks, 32);
  EXPECT_EQ(read.ranks_per_node, 8);
  ASSERT_TRUE(read.node.has_value());
  EXPECT_EQ(read.node->algorithm, LinkAlgorithm::kOneShot);
  EXPECT_DOUBLE_EQ(read.node->latency, 0.5e-6);
  EXPECT_DOUBLE_EQ(read.node->bandwidth, 300e9);
  EXPECT_DOUBLE_EQ(read.jitter.sigma, 0.1);
  EXPECT_DOUBLE_EQ(read.jitter.tail_probability, 0.01);
  EXPECT_DOUBLE_EQ(read.jitter.tail_mean, 250e-6);
}

TEST(InterconnectLoad, WhatIsLeftOutIsNothing) {
  const Interconnect read = parse_interconnect(file_with({{"algorithm", "tree"}}), "net.yaml", "net");
  EXPECT_EQ(read.name, "net");
  EXPECT_EQ(read.link.algorithm, LinkAlgorithm::kTree);
  EXPECT_EQ(read.overhead, 0);
  EXPECT_EQ(read.multiplier, 1);
  EXPECT_FALSE(read.ranks.has_value());
  EXPECT_FALSE(read.node.has_value());
  EXPECT_EQ(read.jitter.sigma, 0);
  EXPECT_EQ(read.jitter.tail_probability, 0);
}

TEST(InterconnectLoad, ErrorsNameLineKeyAndWhatIsExpected) {
  EXPECT_EQ(error_in_file("algoritm: ring"), "net.yaml:1: unknown key 'algoritm'; did you mean 'algorithm'?");
  EXPECT_EQ(error_in_file(file_with({{"algorithm", "rings"}})),
            "net.yaml:1: algorithm: found 'rings', expected one of ring, tree, one-shot; did you mean 'ring'?");
  EXPECT_EQ(error_in_file(file_with({{"latency_us", "-1"}})),
            "net.yaml:3: latency_us: found '-1', expected a number from 0 to 1000000");
  EXPECT_EQ(error_in_file(file_with({{"latency_us", "2us"}})),
            "net.yaml:3: latency_us: found '2us', expected a number from 0 to 1000000");
  EXPECT_EQ(error_in_file(file_with({{"latency_us", ""}})),
            "net.yaml:3: latency_us: found nothing, expected a number from 0 to 1000000");
  EXPECT_EQ(error_in_file(file_with({{"bandwidth_GBps", "-"}})),
            "net.yaml: bandwidth_GBps: found nothing, expected a number from 0.001 to 1000000");
  EXPECT_EQ(error_in_file(file_with({{"source", "-"}})),
            "net.yaml: source: found nothing, expected where the figures are from");
  EXPECT_EQ(error_in_file(file_with({{"ranks", "1"}})),
            "net.yaml:4: ranks: found '1', expected an integer from 2 to 1048576");
  EXPECT_EQ(error_in_file(file_with({{"ranks", "2.5"}})),
            "net.yaml:4: ranks: found '2.5', expected an integer from 2 to 1048576");
  EXPECT_EQ(error_in_file(file_with({{"node", "fast"}})), "net.yaml:4: node: found 'fast', expected a map of keys");
  EXPECT_EQ(error_in_file(file_with({{"jitter", "{sigm: 1}"}})),
            "net.yaml:3: unknown key 'jitter.sigm'; did you mean 'jitter.sigma'?");
  EXPECT_EQ(error_in_file(file_with({{"jitter", "{tail_probability: 1.5}"}})),
            "net.yaml:3: jitter.tail_probability: found '1.5', expected a number from 0 to 1");
  EXPECT_EQ(error_in_file(file_with({{"jitter", "{tail_probability: 0.5}"}})),
            "net.yaml: jitter.tail_mean_us: found nothing beside tail_probability, expected how long a delay is");
  EXPECT_EQ(error_in_file(file_with({{"node", "{algorithm: ring, latency_us: 1}"}, {"ranks_per_node", "8"}})),
            "net.yaml: node.bandwidth_GBps: found nothing, expected a number from 0.001 to 1000000");
  EXPECT_EQ(error_in_file(file_with({{"ranks_per_node", "8"}})),
            "net.yaml: node: found nothing beside ranks_per_node, expected the link inside a node");
  EXPECT_EQ(error_in_file(file_with({{"node", "{algorithm: ring, latency_us: 1, bandwidth_GBps: 1}"}})),
            "net.yaml: ranks_per_node: found nothing beside node, expected how many ranks a node has");
  EXPECT_EQ(error_in_file(file_with({{"node", "{}"}, {"ranks_per_node", "8"}})),
            "net.yaml: node.algorithm: found nothing, expected one of ring, tree, one-shot");
  EXPECT_EQ(error_in_file(file_with({{"sigma", "0.1"}})),
            "net.yaml:4: unknown key 'sigma'; did you mean 'jitter.sigma'?");
  EXPECT_EQ(error_in_file(file_with({{"jitter.sigma", "x"}})),
            "net.yaml:3: jitter.sigma: found 'x', expected a number from 0 to 2");
  EXPECT_EQ(error_in_file(file_with({{"jitter", "{sigma: 0.1}"}, {"jitter.sigma", "0.1"}})),
            "net.yaml:4: duplicate key 'jitter.sigma', expected it once");
  EXPECT_EQ(error_in_file(file_with({{"latency_us", "nan"}})),
            "net.yaml:3: latency_us: found 'nan', expected a number from 0 to 1000000");
  EXPECT_EQ(error_in_file(file_with({{"latency_us", "\"2\""}})),
            "net.yaml:3: latency_us: found the string '2', expected a number from 0 to 1000000");
  EXPECT_EQ(error_in_file(file_with({{"name", "[a]"}})), "net.yaml:4: name: found a list, expected a name");
  EXPECT_EQ(error_in_file(file_with({}) + "algorithm: tree"),
            "net.yaml:5: duplicate key 'algorithm', expected it once");
  EXPECT_EQ(error_in_file("- ring"), "net.yaml: found a list, expected a map of keys");
  EXPECT_EQ(error_in_file(""), "net.yaml: found nothing, expected a map of keys");
  EXPECT_THAT(error_in_file("algorithm: [ring"), StartsWith("net.yaml:1: found broken YAML ("));
}

TEST(InterconnectLoad, ANameThatIsNoneGetsTheNearest) {
  EXPECT_THAT(bad_input([] { load_interconnect("tpu-v4-chem", "--wire"); }),
              AllOf(StartsWith("--wire: found no file 'tpu-v4-chem'; looked at 'tpu-v4-chem.yaml', "
                               "'configs/interconnects/tpu-v4-chem.yaml', '/"),
                    EndsWith("/share/specdec/configs/interconnects/tpu-v4-chem.yaml'; did you mean 'tpu-v4-chen'?")));
  EXPECT_THAT(
      bad_input([] { load_interconnect("tpu-v4-chem.yaml", "--wire", "jobs"); }),
      AllOf(StartsWith("--wire: found no file 'tpu-v4-chem.yaml'; looked at 'jobs/tpu-v4-chem.yaml', "
                       "'tpu-v4-chem.yaml', 'configs/interconnects/tpu-v4-chem.yaml', '/"),
            EndsWith("/share/specdec/configs/interconnects/tpu-v4-chem.yaml'; did you mean 'tpu-v4-chen.yaml'?")));
  EXPECT_EQ(bad_input([] { load_interconnect("no/such.yaml", "--wire", "jobs"); }),
            "--wire: found no file 'no/such.yaml'; looked at 'jobs/no/such.yaml', 'no/such.yaml'");
  EXPECT_EQ(bad_input([] { load_interconnect("/no/such.yaml", "--wire", "jobs"); }),
            "--wire: found no file '/no/such.yaml'; looked at '/no/such.yaml'");
}

TEST(InterconnectLoad, NamesAreFoundWithAndWithoutTheEnding) {
  EXPECT_EQ(load_interconnect("tpu-v4-chen", "test").name, "tpu-v4-chen");
  EXPECT_EQ(load_interconnect("tpu-v4-chen.yaml", "test").name, "tpu-v4-chen");
  const TemporaryDirectory directory;
  EXPECT_EQ(load_interconnect(directory.write("mine.net", file_with({})).string(), "test").name, "mine");
}

TEST(InterconnectLoad, FilesAreLookedUpBesideTheConfigFirst) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path() / "wires");
  directory.write("mine.yaml", file_with({{"source", "beside"}}));
  directory.write("wires/mine.yaml", file_with({{"source", "below"}}));
  directory.write("tpu-v4-chen.yaml", file_with({{"source", "ours"}}));
  const auto source = [&](const std::string& name) { return load_interconnect(name, "test", directory.path()).source; };
  EXPECT_EQ(source("mine.yaml"), "beside");
  EXPECT_EQ(source("./mine.yaml"), "beside");
  EXPECT_EQ(source("wires/mine.yaml"), "below");
  EXPECT_EQ(source("tpu-v4-chen.yaml"), "ours");
  EXPECT_THAT(source("tpu-v4-chen"), HasSubstr("Chen et al.")) << "without the ending it is a preset";
}

TEST(InterconnectLoad, NativeIsAChoice) {
  EXPECT_EQ(load_choice("native", "--wire"), std::nullopt);
  EXPECT_EQ(name_of(load_choice("tpu-v4-chen", "--wire")), "tpu-v4-chen");
  const TemporaryDirectory directory;
  const std::string unnamed = directory.write("native.yaml", file_with({})).string();
  EXPECT_EQ(bad_input([&] { load_choice(unnamed, "--wire"); }),
            "--wire: " + unnamed + ": name: found 'native', expected a name of its own");
}

TEST(InterconnectLoad, WhatIsWrongInAFileBeginsWithWhoNamedIt) {
  const TemporaryDirectory directory;
  const std::string broken = directory.write("broken.yaml", file_with({{"algorithm", "telepathy"}})).string();
  const std::string why = broken + ":1: algorithm: found 'telepathy', expected one of ring, tree, one-shot";
  EXPECT_EQ(bad_input([&] { load_choice(broken, "--interconnect"); }), "--interconnect: " + why);
  const auto refused = [&](const std::string& value) {
    return bad_input([&] { parse_config("target: a\ninterconnect: " + value + "\n", "f.yaml", directory.path()); });
  };
  EXPECT_EQ(refused("broken.yaml"), "f.yaml:2: interconnect: " + why);
  EXPECT_EQ(refused("[native, broken.yaml]"), "f.yaml:2: interconnect: " + why);
  EXPECT_EQ(refused("./none.yaml"), "f.yaml:2: interconnect: found no file './none.yaml'; looked at '" +
                                        (directory.path() / "./none.yaml").string() + "', './none.yaml'");
  LoadedConfig config;
  EXPECT_EQ(bad_input([&] { set_key(config, "interconnect=" + broken); }), "--set: interconnect: " + why);
}

TEST(InterconnectPresets, AllLoadAndSayWhereTheyAreFrom) {
  int found = 0;
  for (const auto& file : std::filesystem::directory_iterator(kPresets)) {
    const Interconnect read = load_interconnect(file.path().string(), "test");
    EXPECT_EQ(read.name, file.path().stem().string());
    EXPECT_GT(read.source.size(), 20U) << file.path();
    for (const int ranks : {2, 8}) {
      const double small = read.all_reduce(1024, ranks);
      EXPECT_GT(small, 1e-6) << file.path();
      EXPECT_LT(small, 1e-3) << file.path();
      EXPECT_LT(small, read.all_reduce(1 << 20, ranks)) << file.path();
    }
    ++found;
  }
  EXPECT_EQ(found, 13);
}

// The figures that the presets name as their sources, in microseconds; the deviations are those that the files state.
TEST(InterconnectPresets, AreNearTheirSources) {
  const auto expect = [](const Interconnect& read, double kib, double measured, double deviation) {
    const double modelled = 1e6 * read.all_reduce(static_cast<std::size_t>(kib * 1024), 8);
    EXPECT_NEAR(modelled, measured, deviation * measured) << read.name << ", " << kib << " KiB";
  };
  for (const auto& [kib, us] :
       std::map<double, double>{{24, 7.23}, {48, 7.69}, {96, 8.34}, {192, 9.75}, {384, 12.99}}) {
    expect(preset("nvlink-8xa100"), kib, us, 0.02);
  }
  for (const auto& [kib, us] :
       std::map<double, double>{{0.5, 5.9}, {4, 5.7}, {32, 7.8}, {256, 16.7}, {512, 22.1}, {1024, 33.8}}) {
    expect(preset("nvlink-8xh100"), kib, us, 0.17);
  }
  for (const auto& [kib, us] : std::map<double, double>{{24, 15.6}, {48, 16.6}, {96, 17.8}, {192, 19.3}, {384, 22.7}}) {
    expect(preset("nvlink-8xa100-2-nodes"), kib, us, 0.11);
  }
  for (const auto& [kib, us] :
       std::map<double, double>{{8, 47.5}, {16, 47.9}, {32, 47.3}, {64, 52.9}, {128, 66.7}, {256, 91.2}, {512, 143}}) {
    expect(preset("pcie-only"), kib, us, 0.09);
  }
}

// Chen et al.: two all-reduces of one row of 8192 bf16 values are a layer's 75 us, and 82 KB at K = 4 add about 0.6 us each.
TEST(InterconnectPresets, ChenHasThePapersLayer) {
  const Interconnect chen = preset("tpu-v4-chen");
  EXPECT_NEAR(2 * chen.all_reduce(2 * 8192, 8), 75e-6, 0.3e-6);
  EXPECT_NEAR(chen.all_reduce(5 * 2 * 8192, 8) - chen.overhead, 0.6e-6, 0.05e-6);
}

TEST(InterconnectPresets, MoreNodesTakeLonger) {
  for (const std::string gpu : {"a100", "h100"}) {
    double before = preset("nvlink-8x" + gpu).all_reduce(81920, 8);
    for (const std::string nodes : {"2", "4", "8"}) {
      const double now = preset("nvlink-8x" + gpu + "-" + nodes + "-nodes").all_reduce(81920, 8);
      EXPECT_GT(now, before + 2 * 4.1e-6 * 0.99) << gpu << ", " << nodes << " nodes";
      before = now;
    }
  }
}

}  // namespace
}  // namespace specdec
