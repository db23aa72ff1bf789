#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "models/checkpoint.h"
#include "models/config.h"
#include "models/transformer.h"
#include "parallel/thread_communicator.h"
#include "tests/support/all_isas.h"
#include "tests/support/emulated_device.h"
#include "tests/support/random_model.h"

/// A whole model on an emulated GPU: what the layers hand to a backend is the same, whichever it is.
namespace specdec {
namespace {

using MakeBackend = std::function<std::unique_ptr<Backend>()>;

/// Enough for each kind of pass to be done, recorded and replayed.
constexpr int kPasses = 4;

/// Rows of a pass at `position`: a chain, or, with `forked`, one whose last row follows the first.
class Chain {
 public:
  Chain(std::int64_t rows, std::int32_t position, bool forked) : tokens_(rows), position_(rows), parent_(rows) {
    std::iota(tokens_.begin(), tokens_.end(), 40 + position);
    std::iota(position_.begin(), position_.end(), position);
    std::iota(parent_.begin(), parent_.end(), -1);
    if (forked) {
      parent_.back() = -1;
      position_.back() = position;
    }
  }
  PassRows rows() const { return {tokens_, position_, parent_}; }

 private:
  std::vector<Token> tokens_;
  std::vector<std::int32_t> position_;
  std::vector<std::int32_t> parent_;
};

/// Logits of rank 0's part of the vocabulary, of a prefill and of passes over `rows` rows and one fewer, in two caches.
std::vector<float> logits_of(const std::filesystem::path& directory, int ranks, DType dtype, std::int64_t rows,
                             const MakeBackend& make_backend) {
  const Checkpoint checkpoint(directory);
  std::vector<float> out;
  run_ranks(ranks, [&](Communicator& group) {
    const auto backend = make_backend();
    Transformer model(load_model_config(directory), checkpoint, *backend, group, {.dtype = dtype, .max_rows = rows});
    KvCache cache = model.make_cache();
    const std::vector<Token> prompt = {5, 17, 99, 3, 250};
    const auto take = [&](ConstRows logits) {
      std::vector<float> values(static_cast<std::size_t>(logits.rows * logits.cols));
      for (std::int64_t r = 0; r < logits.rows; ++r) {
        backend->download(std::as_writable_bytes(std::span(values).subspan(r * logits.cols, logits.cols)),
                          reinterpret_cast<const std::byte*>(logits.row(r)), {});
      }
      backend->synchronize({});
      if (group.rank() == 0) {
        out.insert(out.end(), values.begin(), values.end());
      }
    };
    take(model.prefill(prompt, cache, {}));
    for (std::int64_t pass = 0; pass < kPasses; ++pass) {
      for (const std::int64_t count : {rows, rows - 1}) {
        const Chain chain(count, static_cast<std::int32_t>(cache.committed()), count < rows && pass % 2 == 1);
        take(model.forward(chain.rows(), cache, LogitRows::kAll, {}));
        cache.commit_prefix(count - 1);
      }
    }
    // The same again in another cache, where other tokens stand: nothing of the first may be found there.
    KvCache other = model.make_cache();
    take(model.prefill(std::span(prompt).first(2), other, {}));
    take(model.forward(Chain(rows, 2, false).rows(), other, LogitRows::kLast, {}));
    take(model.forward(Chain(rows, static_cast<std::int32_t>(2 + rows), false).rows(), other, LogitRows::kAll, {}));
  });
  return out;
}

struct ModelCase {
  const char* family;
  DType dtype;
  int ranks;
};

class GpuTransformer : public ::testing::TestWithParam<ModelCase> {};

TEST_P(GpuTransformer, HasTheCpusBitsInTheCpusOrder) {
  if (detect_isa() == Isa::kScalar) {
    GTEST_SKIP() << "this CPU does not fuse multiply-adds";
  }
  const ModelCase& c = GetParam();
  const tests::TemporaryDirectory directory;
  tests::write_random_model({.family = c.family, .layers = 2}, directory.path());
  const auto cpu = [] { return std::make_unique<CpuBackend>(strongest_isa_in_turn(), 1); };
  const std::vector<float> expected = logits_of(directory.path(), c.ranks, c.dtype, 3, cpu);
  for (const bool graphs : {false, true}) {
    // Of each rank its own, as the copies of a device share what they count and download.
    std::mutex mutex;
    std::vector<std::shared_ptr<const int>> replays;
    const auto gpu = [&] {
      EmulatedDevice device;
      {
        const std::scoped_lock lock(mutex);
        replays.push_back(device.replays());
      }
      return std::make_unique<EmulatedBackend>(std::move(device),
                                               CudaOptions{.products = CudaProducts::kCpuOrder, .graphs = graphs});
    };
    EXPECT_EQ(logits_of(directory.path(), c.ranks, c.dtype, 3, gpu), expected) << "graphs: " << graphs;
    ASSERT_EQ(replays.size(), static_cast<std::size_t>(c.ranks));
    for (const auto& of_rank : replays) {
      // Sums of several ranks go over the host, which no graph holds.
      EXPECT_EQ(*of_rank > 0, graphs && c.ranks == 1);
    }
  }
}

TEST(GpuTransformerOnTensorCores, HasTheSameBitsWithActivationsInProducts) {
  const tests::TemporaryDirectory directory;
  tests::write_random_model({.family = "llama", .layers = 2}, directory.path());
  const auto logits = [&](bool fuse, bool graphs) {
    return logits_of(directory.path(), 2, DType::kBF16, 3, [&] {
      return std::make_unique<EmulatedBackend>(EmulatedDevice(), CudaOptions{.graphs = graphs, .fuse = fuse});
    });
  };
  const std::vector<float> expected = logits(false, false);
  EXPECT_EQ(logits(true, false), expected);
  EXPECT_EQ(logits(true, true), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuTransformer,
                         ::testing::Values(ModelCase{"llama", DType::kBF16, 1}, ModelCase{"llama", DType::kF32, 2},
                                           ModelCase{"gpt2", DType::kBF16, 2}),
                         [](const auto& of) {
                           return std::string(of.param.family) + "_" + std::string(name_of(of.param.dtype)) + "_" +
                                  std::to_string(of.param.ranks) + "ranks";
                         });

}  // namespace
}  // namespace specdec
