/// The head computes only the rows that a decision needs.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "backend/factory.h"
#include "backend/forwarding_backend.h"
#include "models/random_tensors.h"
#include "models/transformer.h"
#include "parallel/self_communicator.h"
#include "tests/support/source_directory.h"

namespace specdec {
namespace {

/// Counts rows of products as wide as the vocabulary.
class CountsHeadRows final : public ForwardingBackend {
 public:
  explicit CountsHeadRows(std::int64_t vocabulary)
      : ForwardingBackend(make_backend({.name = "cpu"})), vocabulary_(vocabulary) {}
  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream stream) override {
    if (y.cols == vocabulary_) rows += x.rows;
    ForwardingBackend::matmul(weight, x, y, stream);
  }

  std::int64_t rows = 0;

 private:
  std::int64_t vocabulary_;
};

TEST(HeadRows, AreThoseThatAreAskedFor) {
  ModelConfig shape = load_model_config(tests::kSource / "assets/manpy-0.5m");
  shape.vocabulary += 3;  // as wide as nothing else
  CountsHeadRows backend(shape.vocabulary);
  SelfCommunicator self;
  RandomTensors weights(1);
  constexpr std::int64_t kRows = 4;
  Transformer model(shape, weights, backend, self, {.max_rows = kRows});
  KvCache cache = model.make_cache(32);
  std::vector<Token> tokens{1, 2, 3, 4};
  std::vector<std::int32_t> position(kRows);
  std::vector<std::int32_t> parent(kRows);
  std::iota(position.begin(), position.end(), 0);
  std::iota(parent.begin(), parent.end(), -1);
  for (const auto& [asked, expected] : {std::pair(LogitRows::kAll, kRows), std::pair(LogitRows::kLast, std::int64_t{1}),
                                        std::pair(LogitRows::kNone, std::int64_t{0})}) {
    backend.rows = 0;
    model.forward({tokens, position, parent}, cache, asked, Stream{});
    EXPECT_EQ(backend.rows, expected);
    cache.commit_prefix(0);
  }
  // Of a prompt in several passes the last row alone.
  backend.rows = 0;
  model.prefill(std::vector<Token>{1, 2, 3, 4, 5, 6, 7, 8, 9}, cache, Stream{});
  EXPECT_EQ(backend.rows, 1);
}

}  // namespace
}  // namespace specdec
