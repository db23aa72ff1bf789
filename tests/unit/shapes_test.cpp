#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "models/config.h"
#include "models/random_tensors.h"
#include "models/weights.h"
#include "runtime/cli.h"
#include "tests/support/source_directory.h"

/// The shapes and configurations that are shipped for models without a checkpoint.
namespace specdec {
namespace {

using tests::kSource;

/// Counts the elements of what a family's mapping asks for.
class CountedTensors final : public TensorSource {
 public:
  bool contains(std::string_view) const override { return false; }
  TensorView tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    std::int64_t elements = 1;
    for (const std::int64_t size : shape) {
      elements *= size;
    }
    counted_[std::string(name)] = elements;
    return random_.tensor(name, shape);
  }
  const std::map<std::string, TensorView, std::less<>>& tensors() const override { return random_.tensors(); }
  std::string name() const override { return "counted"; }

  std::int64_t parameters() const {
    std::int64_t sum = 0;
    for (const auto& [name, elements] : counted_) {
      sum += elements;
    }
    return sum;
  }

 private:
  RandomTensors random_{0};
  mutable std::map<std::string, std::int64_t> counted_;
};

std::int64_t parameters(const ModelConfig& config) {
  const CountedTensors tensors;
  map_weights(config, tensors, ShardPlan(config.shard_shape(), 0, 1), DType::kBF16);
  return tensors.parameters();
}

ModelConfig shape(const std::string& name) { return load_model_config(kSource / "assets" / "shapes" / name); }

TEST(Shapes, HaveTheParametersOfTheirModels) {
  EXPECT_EQ(parameters(shape("llama-3-8b")), 8'030'261'248);    // as published with the model
  EXPECT_EQ(parameters(shape("llama-3.2-1b")), 1'235'814'400);  // as published with the model
  // 13 d^2 a layer, the table of the vocabulary, two norms a layer and one at the end.
  EXPECT_EQ(parameters(shape("chinchilla-70b")), 80LL * 13 * 8192 * 8192 + 32000 * 8192 + 161 * 8192);
  EXPECT_EQ(parameters(shape("chinchilla-4b")), 8LL * 13 * 6144 * 6144 + 32000 * 6144 + 17 * 6144);
  EXPECT_NEAR(static_cast<double>(parameters(shape("chinchilla-70b"))), 70e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(parameters(shape("chinchilla-4b"))), 4.1e9, 0.05e9);
}

TEST(Shapes, AreCutOverTheRanksThatTheyAreFor) {
  for (const char* name : {"llama-3-8b", "chinchilla-70b"}) {
    for (const int ranks : {1, 2, 4, 8, 16}) {
      std::int64_t most = 0;
      std::int64_t least = INT64_MAX;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::int64_t columns = ShardPlan(shape(name).shard_shape(), rank, ranks).feed_forward().size();
        most = std::max(most, columns);
        least = std::min(least, columns);
      }
      EXPECT_EQ(most, least) << name << " over " << ranks;
    }
  }
}

class GpuConfigs : public ::testing::TestWithParam<std::filesystem::path> {};

std::vector<std::filesystem::path> gpu_configs() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "configs" / "gpu")) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

TEST_P(GpuConfigs, AreReadAndNameShapesThatFitTogether) {
  const std::string file = GetParam().string();
  const char* const arguments[] = {"specdec_dist", "--config", file.c_str()};
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(kSource);
  const RunConfig run = make_run_config(parse_command_line(3, arguments));
  std::filesystem::current_path(here);
  EXPECT_EQ(run.backend, "cuda");
  EXPECT_TRUE(run.weights.random);
  const ModelConfig target = load_model_config(run.target);
  for (const Prompt& prompt : run.prompts) {
    EXPECT_GT(prompt.random, 0) << "a shape has no tokenizer";
    EXPECT_LE(prompt.random + run.decode.max_new_tokens, target.context);
  }
  if (!run.draft.empty()) {
    EXPECT_EQ(load_model_config(run.draft).vocabulary, target.vocabulary);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuConfigs, ::testing::ValuesIn(gpu_configs()), [](const auto& of) {
  std::string name = of.param.stem().string();
  std::ranges::replace_if(
      name, [](unsigned char letter) { return std::isalnum(letter) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace specdec
