#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/forwarding_backend.h"
#include "backend/reference/reference_backend.h"
#include "models/checkpoint.h"
#include "models/config.h"
#include "models/transformer.h"
#include "parallel/thread_communicator.h"
#include "tests/support/random_model.h"

/// Which weights a model has asked for while ranks add up their sums.
namespace specdec {
namespace {

/// Compares what is announced with what is multiplied with next.
class Watching final : public ForwardingBackend {
 public:
  Watching() : ForwardingBackend(std::make_unique<ReferenceBackend>()) {}

  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream stream) override {
    if (announced_ != nullptr) {
      EXPECT_EQ(&weight, announced_) << "after " << kept << " that were right";
      kept += &weight == announced_ ? 1 : 0;
    }
    announced_ = nullptr;
    ForwardingBackend::matmul(weight, x, y, stream);
  }
  void matmul_before(const PackedLinear& weight, ConstRows x, Rows y, const PackedLinear& next,
                     Stream stream) override {
    matmul(weight, x, y, stream);
    announced_ = &next;
  }

  int kept = 0;

 private:
  const PackedLinear* announced_ = nullptr;
};

class WeightsAhead : public ::testing::TestWithParam<const char*> {};

TEST_P(WeightsAhead, AreThoseOfTheNextSublayerAndAtLastTheHead) {
  constexpr int kLayers = 3;
  const tests::TemporaryDirectory directory;
  tests::write_random_model({.family = GetParam(), .layers = kLayers}, directory.path());
  const Checkpoint checkpoint(directory.path());
  run_ranks(2, [&](Communicator& group) {
    Watching backend;
    Transformer model(load_model_config(directory.path()), checkpoint, backend, group, {.max_rows = 2});
    KvCache cache = model.make_cache();
    const std::vector<Token> tokens = {5, 17};
    const std::vector<std::int32_t> position = {0, 1};
    const std::vector<std::int32_t> parent = {-1, 0};
    model.forward({tokens, position, parent}, cache, LogitRows::kAll, {});
    EXPECT_EQ(backend.kept, 2 * kLayers);
  });
}

INSTANTIATE_TEST_SUITE_P(Families, WeightsAhead, ::testing::Values("llama", "gpt2"));

}  // namespace
}  // namespace specdec
