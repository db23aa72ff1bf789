#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <numeric>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "models/checkpoint.h"
#include "models/config.h"
#include "models/transformer.h"
#include "parallel/thread_communicator.h"
#include "tests/support/emulated_device.h"
#include "tests/support/random_model.h"

/// A whole model on an emulated GPU: what the layers hand to a backend is the same, whichever it is.
namespace specdec {
namespace {

using MakeBackend = std::function<std::unique_ptr<Backend>()>;

/// Logits of rank 0's part of the vocabulary, of a prefill and then of a pass over `rows` rows of a chain.
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
    std::vector<Token> tokens(rows);
    std::vector<std::int32_t> position(rows);
    std::vector<std::int32_t> parent(rows);
    std::iota(tokens.begin(), tokens.end(), 40);
    std::iota(position.begin(), position.end(), static_cast<std::int32_t>(prompt.size()));
    std::iota(parent.begin(), parent.end(), -1);
    take(model.forward({tokens, position, parent}, cache, LogitRows::kAll, {}));
  });
  return out;
}

struct Case {
  const char* family;
  DType dtype;
  int ranks;
};

class GpuTransformer : public ::testing::TestWithParam<Case> {};

TEST_P(GpuTransformer, HasTheCpusBitsInTheCpusOrder) {
  if (detect_isa() == Isa::kScalar) {
    GTEST_SKIP() << "this CPU does not fuse multiply-adds";
  }
  const Case& c = GetParam();
  const testing::TemporaryDirectory directory;
  testing::write_random_model({.family = c.family, .layers = 2}, directory.path());
  const auto cpu = [] { return std::make_unique<CpuBackend>(detect_isa(), 1); };
  const auto gpu = [] { return std::make_unique<EmulatedBackend>(EmulatedDevice(), true); };
  EXPECT_EQ(logits_of(directory.path(), c.ranks, c.dtype, 3, gpu),
            logits_of(directory.path(), c.ranks, c.dtype, 3, cpu));
}

INSTANTIATE_TEST_SUITE_P(Models, GpuTransformer,
                         ::testing::Values(Case{"llama", DType::kBF16, 1}, Case{"llama", DType::kF32, 2},
                                           Case{"gpt2", DType::kBF16, 2}),
                         [](const auto& of) {
                           return std::string(of.param.family) + "_" + std::string(name_of(of.param.dtype)) + "_" +
                                  std::to_string(of.param.ranks) + "ranks";
                         });

}  // namespace
}  // namespace specdec
