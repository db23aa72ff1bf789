#include "tests/support/decode_harness.h"

#include <algorithm>

#include "models/checkpoint.h"
#include "runtime/adaptive_draft_length.h"
#include "runtime/configuration_hash.h"
#include "runtime/model_drafter.h"
#include "runtime/philox.h"
#include "tests/support/test_isa.h"

namespace specdec::tests {
namespace {

constexpr std::int64_t kMaxDrafted = 20;

class RandomDrafter final : public Drafter {
 public:
  RandomDrafter(std::int64_t vocabulary, bool greedy, std::uint64_t seed)
      : vocabulary_(vocabulary), greedy_(greedy), seed_(seed) {}
  void begin(std::uint32_t sequence, std::span<const Token>) override { sequence_ = sequence; }
  void propose(std::uint32_t round, std::span<const Token> history, std::int64_t k, DraftBlock& block) override {
    block.clear();
    for (std::int64_t i = 0; i < k; ++i) {
      const double u = uniform({.seed = seed_,
                                .sequence = sequence_,
                                .round = round,
                                .position = static_cast<std::uint32_t>(history.size()) + static_cast<std::uint32_t>(i),
                                .level = 1});
      block.tokens.push_back(static_cast<Token>(u * static_cast<double>(vocabulary_)));
      block.parent.push_back(static_cast<std::int32_t>(i) - 1);
      block.q.push_back(greedy_ ? 1.0F : 1.0F / static_cast<float>(vocabulary_));
    }
    if (!greedy_) {
      rows_.assign(static_cast<std::size_t>(k * vocabulary_), 1.0F / static_cast<float>(vocabulary_));
      block.q_rows = {rows_.data(), k, vocabulary_, vocabulary_};
    }
  }
  std::int64_t room(std::int64_t) const override { return kMaxDrafted; }

 private:
  std::int64_t vocabulary_;
  std::vector<float> rows_;
  bool greedy_;
  std::uint64_t seed_;
  std::uint32_t sequence_ = 0;
};

class Collect final : public OutputSink {
 public:
  explicit Collect(DecodeResult& result) : result_(result) {}
  void begin_output(const std::string&, std::span<const Token>) override {}
  void prefilled(double) override {}
  void append(std::span<const Token> tokens, const std::string&, const LoopRecord& loop) override {
    result_.tokens.insert(result_.tokens.end(), tokens.begin(), tokens.end());
    result_.loops.push_back(loop);
  }
  void finish_output(const std::string& reason, const std::string&) override { result_.finish_reason = reason; }

 private:
  DecodeResult& result_;
};

/// A whole model on one rank.
struct LocalModel {
  LocalModel(const std::filesystem::path& directory, Backend& backend, const TransformerOptions& options)
      : checkpoint(directory), model(load_model_config(directory), checkpoint, backend, self, options) {}
  SelfCommunicator self;
  Checkpoint checkpoint;
  Transformer model;
};

}  // namespace

struct DecodeRank::State {
  State(Communicator& world, const DecodeCase& base)
      : group(world),
        backend(base.make_backend ? base.make_backend()
                                  : make_backend({.name = "cpu", .isa = test_isa(), .threads = base.threads})),
        options{.dtype = base.dtype, .max_rows = kMaxDrafted + 1},
        checkpoint(base.target),
        target(load_model_config(base.target), checkpoint, *backend, group, options),
        channel(world, progress, kMaxDrafted) {
    if (world.rank() == 0) {
      itself = std::make_unique<LocalModel>(base.target, *backend, options);
      if (!base.draft.empty()) {
        draft = std::make_unique<LocalModel>(base.draft, *backend, options);
      }
    }
  }

  std::unique_ptr<Drafter> make_drafter(const DecodeCase& settings) {
    switch (settings.kind) {
      case DraftKind::kNone:
        return nullptr;
      case DraftKind::kModel:
        return std::make_unique<ModelDrafter>(draft->model, settings.sampling, settings.seed);
      case DraftKind::kRandom:
        return std::make_unique<RandomDrafter>(target.config().vocabulary, settings.sampling.greedy(), settings.seed);
      case DraftKind::kTarget:
        return std::make_unique<ModelDrafter>(itself->model, settings.sampling, settings.seed);
    }
    return nullptr;
  }

  /// Scorers agree where the seed, the sampling and the model are the same.
  std::uint64_t configuration(const DecodeCase& settings) const {
    return configuration_hash(
        {.dtype = settings.dtype, .decode = {.sampling = settings.sampling, .seed = settings.seed}}, target.config(),
        checkpoint, name_of(test_isa()), group.size());
  }

  TimedCommunicator group;
  std::unique_ptr<Backend> backend;
  TransformerOptions options;
  Checkpoint checkpoint;
  Transformer target;
  Progress progress;
  RoundChannel channel;
  std::unique_ptr<LocalModel> itself;
  std::unique_ptr<LocalModel> draft;
};

DecodeRank::DecodeRank(Communicator& group, const DecodeCase& base) : state_(std::make_unique<State>(group, base)) {}
DecodeRank::~DecodeRank() = default;

DecodeResult DecodeRank::run(const DecodeCase& settings, const std::vector<Token>& prompt, std::uint32_t sequence,
                             bool keep_logits) {
  State& s = *state_;
  DecodeResult result;
  result.vocabulary = s.target.plan().vocabulary();
  const TokenVerifier verifier;
  Decision decision(s.target.head(), s.group.rank() == 0, settings.sampling, verifier, settings.seed);
  Scorer scorer(s.target, s.group, decision, s.configuration(settings));
  if (keep_logits) {
    scorer.observe([&result](std::int64_t position, ConstRows logits) {
      for (std::int64_t r = 0; r < logits.rows; ++r) {
        result.logits[position + r].assign(logits.row(r), logits.row(r) + logits.cols);
      }
    });
  }
  if (s.group.rank() != 0) {
    run_worker(scorer, s.channel);
    return result;
  }
  const std::unique_ptr<Drafter> drafter = s.make_drafter(settings);
  const std::unique_ptr<DraftLength> length =
      make_draft_length({.k = settings.k, .draft_length = settings.draft_length}, settings.loop_times);
  Coordinator coordinator(scorer, s.channel, drafter.get(), *length, nullptr, settings.rules, [] { return false; });
  Collect collect(result);
  coordinator.generate(sequence, "", prompt, collect);
  end_job(s.channel);
  return result;
}

void DecodeRank::follow(const DecodeCase& settings, const Tampering& tampering) {
  State& s = *state_;
  const TokenVerifier verifier;
  Decision decision(s.target.head(), false, settings.sampling, verifier, settings.seed);
  Scorer scorer(s.target, s.group, decision, s.configuration(settings));
  Round round;
  std::vector<Token> prompt;
  const auto receive = [&] {
    s.channel.exchange(round);
    if (tampering.round) {
      tampering.round(round);
    }
  };
  for (receive(); round.action != RoundAction::kEnd; receive()) {
    if (round.action == RoundAction::kScore) {
      DraftBlock no_draft;
      scorer.score(round, no_draft);
      continue;
    }
    scorer.agreement().check_round(round);
    prompt.resize(static_cast<std::size_t>(round.count));
    s.channel.exchange_prompt(round, prompt);
    if (tampering.prompt) {
      tampering.prompt(prompt);
    }
    scorer.begin(prompt);
  }
}

}  // namespace specdec::tests
