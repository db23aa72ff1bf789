// What `pass_bench --where` says a pass must move, beside what is known of the model.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "backend/reference/reference_backend.h"
#include "models/checkpoint.h"
#include "models/transformer.h"
#include "parallel/self_communicator.h"
#include "tests/bench/measured_backend.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

TEST(MeasuredBackend, CountsTheCallsAndBytesOfAPass) {
  constexpr std::int64_t kLayers = 3;
  constexpr std::int64_t kModel = 40;
  constexpr std::int64_t kQuery = 8 * 6;
  constexpr std::int64_t kKv = 2 * 6;
  constexpr std::int64_t kFeedForward = 100;
  constexpr std::int64_t kVocabulary = 300;
  constexpr std::int64_t kFloat = 4;
  const tests::TemporaryDirectory directory;
  tests::write_random_model({}, directory.path());
  const Checkpoint checkpoint(directory.path());
  SelfCommunicator self;
  MeasuredBackend backend(std::make_unique<ReferenceBackend>());
  Transformer model(load_model_config(directory.path()), checkpoint, backend, self,
                    {.dtype = DType::kF32, .max_rows = 2});
  KvCache cache = model.make_cache();
  const std::vector<Token> prompt = {5, 17, 4, 9, 33};
  model.prefill(prompt, cache, {});
  backend.reset();
  constexpr std::int64_t kRows = 2;
  const std::vector<Token> tokens = {7, 8};
  const std::vector<std::int32_t> position = {5, 6};
  const std::vector<std::int32_t> parent = {-1, 0};
  model.forward({tokens, position, parent}, cache, LogitRows::kAll, {});

  struct Expected {
    std::int64_t calls;
    std::int64_t bytes;  // of one call, weights, keys and values apart
  };
  const auto product = [](std::int64_t in, std::int64_t out) {
    return (in * out + kRows * (in + out)) * kFloat;  // an fp32 weight is read once, whatever the rows
  };
  const std::map<std::string, Expected> expected = {
      {"embedding", {1, 2 * kRows * kModel * kFloat}},
      {"norm", {2, 2 * kRows * kModel * kFloat}},  // before the first layer, and the head's
      {"residual and norm", {2 * kLayers - 1, 4 * kRows * kModel * kFloat}},
      {"residual", {1, 3 * kRows * kModel * kFloat}},
      {"product 40 to 72", {kLayers, product(kModel, kQuery + 2 * kKv)}},
      {"product 48 to 40", {kLayers, product(kQuery, kModel)}},
      {"gated product 40 to 200", {kLayers, product(kModel, 2 * kFeedForward) - kRows * kFeedForward * kFloat}},
      {"product 100 to 40", {kLayers, product(kFeedForward, kModel)}},
      {"product 40 to 300", {1, product(kModel, kVocabulary)}},
      {"rotary embedding and attention",
       {kLayers, (2 * (5 + kRows) * kKv + 2 * kRows * kQuery + 4 * kRows * kKv) * kFloat}},
  };
  std::size_t found = 0;
  double weight_bytes = 0;
  for (const OperationCost& cost : backend.costs()) {
    EXPECT_GE(cost.seconds, 0);
    const auto of = expected.find(cost.name);
    ASSERT_NE(of, expected.end()) << cost.name;
    EXPECT_EQ(cost.calls, of->second.calls) << cost.name;
    EXPECT_EQ(cost.bytes, static_cast<double>(of->second.calls * of->second.bytes)) << cost.name;
    EXPECT_EQ(cost.weight_bytes > 0, cost.name.find("product") != std::string::npos) << cost.name;
    weight_bytes += cost.weight_bytes;
    // Of the two rows one sees six tokens, the other seven: each a product for its score and one for its value.
    EXPECT_EQ(cost.multiply_adds, cost.name == "rotary embedding and attention" ? 2.0 * kLayers * (6 + 7) * kQuery : 0)
        << cost.name;
    ++found;
  }
  EXPECT_EQ(found, expected.size());
  EXPECT_EQ(weight_bytes, static_cast<double>(model.weight_bytes()));
}

}  // namespace
}  // namespace specdec
