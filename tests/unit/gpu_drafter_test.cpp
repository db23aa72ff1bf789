#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "models/checkpoint.h"
#include "models/config.h"
#include "models/transformer.h"
#include "parallel/self_communicator.h"
#include "runtime/model_drafter.h"
#include "tests/support/all_isas.h"
#include "tests/support/emulated_device.h"
#include "tests/support/random_model.h"

/// A draft that never leaves its device while it drafts: chosen tokens are read by the next pass where they are, and passes are replayed.
namespace specdec {
namespace {

struct Drafted {
  std::vector<Token> tokens;
  std::vector<float> q;
  std::vector<float> q_rows;

  bool operator==(const Drafted&) const = default;
};

/// What is drafted in some rounds, of which the target kept one token more each time.
std::vector<Drafted> draft(Backend& backend, const std::filesystem::path& directory, const SamplingParams& sampling) {
  const Checkpoint checkpoint(directory);
  SelfCommunicator self;
  Transformer model(load_model_config(directory), checkpoint, backend, self, {.dtype = DType::kF32, .max_rows = 2});
  ModelDrafter drafter(model, sampling, 7);
  std::vector<Token> history = {5, 17, 99, 3};
  drafter.begin(0, history);
  std::vector<Drafted> rounds;
  for (std::uint32_t round = 0; round < 4; ++round) {
    DraftBlock block;
    drafter.propose(round, history, 3, block);
    EXPECT_EQ(block.tokens, std::vector<Token>(3, DraftBlock::kUnread));
    block.unread->wait();
    block.unread->read(block);
    Drafted& drafted = rounds.emplace_back(Drafted{block.tokens, block.q, {}});
    drafted.q_rows.resize(static_cast<std::size_t>(block.q_rows.rows * block.q_rows.cols));
    if (block.q_rows.rows > 0) {
      backend.download(std::as_writable_bytes(std::span(drafted.q_rows)),
                       reinterpret_cast<const std::byte*>(block.q_rows.data), {});
      backend.synchronize({});
    }
    history.insert(history.end(), block.tokens.begin(), block.tokens.begin() + round);
    history.push_back(static_cast<Token>(40 + round));
  }
  return rounds;
}

TEST(GpuDrafter, DraftsWhatTheCpuDrafts) {
  if (detect_isa() == Isa::kScalar) {
    GTEST_SKIP() << "this CPU does not fuse multiply-adds";
  }
  const tests::TemporaryDirectory directory;
  tests::write_random_model({.layers = 2}, directory.path());
  for (const SamplingParams& sampling : {SamplingParams{.temperature = 0}, SamplingParams{.temperature = 0.9F},
                                         SamplingParams{.temperature = 1.1F, .top_k = 20, .top_p = 0.9F}}) {
    CpuBackend cpu(strongest_isa_in_turn(), 1);
    EmulatedDevice device;
    const auto replays = device.replays();
    EmulatedBackend gpu(std::move(device), CudaOptions{});
    EXPECT_EQ(draft(gpu, directory.path(), sampling), draft(cpu, directory.path(), sampling))
        << "temperature " << sampling.temperature;
    EXPECT_GT(*replays, 0);
  }
}

}  // namespace
}  // namespace specdec
