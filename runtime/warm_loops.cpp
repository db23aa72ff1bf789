#include "runtime/warm_loops.h"

#include <algorithm>
#include <string>
#include <vector>

#include "backend/error.h"
#include "parallel/progress.h"
#include "parallel/self_communicator.h"
#include "parallel/timed_communicator.h"
#include "parallel/tracer.h"
#include "runtime/clock.h"
#include "runtime/coordinator.h"
#include "runtime/decision.h"
#include "runtime/draft_length.h"
#include "runtime/model_drafter.h"
#include "runtime/statistics.h"
#include "runtime/verifier.h"

namespace specdec {
namespace {

constexpr std::int64_t kDrafted = kWarmRows - 1;
/// Loops of one kind, more than the least of them as long as they have not taken kEnough.
struct Loops {
  std::int64_t least = 0;
  std::int64_t most = 0;
};
constexpr Loops kBeside = {24, 24};
/// The first loops are slower, the shorter the more of them: with 8 in all, two rows of a model of 3 MB took a twentieth too long.
constexpr Loops kScored = {8, 32};
constexpr double kEnough = 0.02;  // seconds
constexpr std::size_t kEventsADraftedToken = 4;

/// Rejects what it is shown, and goes on from the target's distribution: where both models are the same nothing else is left.
class NothingStands final : public Verifier {
 public:
  VerifierNeeds needs() const override { return VerifierNeeds::kDraftedEntries; }
  std::int64_t accept(const DraftedBlock& /*block*/, std::span<const double> /*uniforms*/) const override { return 0; }
  void next_weights(std::int64_t /*accepted*/, std::span<const float> p, std::span<const float> /*q*/,
                    std::span<float> out) const override {
    if (p.data() != out.data()) std::ranges::copy(p, out.begin());
  }
};

/// Keeps what the scoring passes of whole loops took, and the loops beside all passes. In each `stand` drafted tokens stand.
class BesidePasses final : public OutputSink {
 public:
  BesidePasses(const Tracer& drafts, std::int64_t stand, const std::function<void()>& after_loop)
      : drafts_(drafts), stand_(stand), after_loop_(after_loop) {}
  void begin_output(const std::string&, std::span<const Token>) override {}
  void prefilled(double) override { began_ = now_seconds(); }
  void append(std::span<const Token>, const std::string&, const LoopRecord& loop) override {
    const std::span<const TraceEvent> events = drafts_.events();
    double passes = loop.score_compute;
    for (; seen_ < events.size(); ++seen_) {
      if (events[seen_].kind != &ModelDrafter::kPass) continue;
      passes += seconds_of(events[seen_]);
      if (events[seen_].value == 1) drafts_of_one_row_.push_back(seconds_of(events[seen_]));
    }
    if (loop.cut) return;
    check(loop.accepted == stand_, "warm loops are of the kind that they are timed as");
    beside_.push_back(loop.total - passes);
    scores_.push_back(loop.score_compute);
    after_loop_();
  }
  void finish_output(const std::string&, const std::string&) override {}

  bool enough(const Loops& loops) const {
    const std::int64_t seen = std::ssize(beside_);
    return seen >= loops.most || (seen >= loops.least && now_seconds() - began_ >= kEnough);
  }
  double beside() const { return median(beside_); }
  double score() const { return median(scores_); }
  double draft() const { return drafts_of_one_row_.empty() ? 0 : median(drafts_of_one_row_); }

 private:
  static double seconds_of(const TraceEvent& event) { return static_cast<double>(event.end - event.begin) * 1e-9; }

  const Tracer& drafts_;
  const std::int64_t stand_;
  const std::function<void()>& after_loop_;
  std::size_t seen_ = 0;
  double began_ = 0;
  std::vector<double> beside_;
  std::vector<double> scores_;
  std::vector<double> drafts_of_one_row_;
};

}  // namespace

WarmLoops warm_loops(const RunConfig& config, Transformer& model, Transformer& smaller, std::int64_t most_rows,
                     std::int64_t context, const std::function<void()>& after_loop) {
  const std::int64_t room = model.config().context - context;
  if (context < 1 || room < 2 * kWarmRows) return {};
  Progress progress;
  SelfCommunicator control;
  SelfCommunicator self;
  const TimedCommunicator group(self);
  std::vector<Token> prompt(static_cast<std::size_t>(context));
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<Token>(static_cast<std::int64_t>(10 + i) % model.config().vocabulary);
  }
  struct Typical {
    double beside = 0;
    double score = 0;
    double draft = 0;
  };
  const auto typical = [&](const Verifier& verifier, Transformer& draft, Loops loops, std::int64_t drafted,
                           std::int64_t stand) -> Typical {
    Tracer tracer(static_cast<std::size_t>((loops.most + 1) * (drafted + 1)) * kEventsADraftedToken);
    ModelDrafter drafter(draft, config.decode.sampling, config.decode.seed, 1, &tracer);
    Decision decision(model.head(), true, config.decode.sampling, verifier, config.decode.seed);
    if (decision.takes_unread()) return {};
    Scorer scorer(model, group, decision);
    RoundChannel channel(control, progress, std::max<std::int64_t>(drafted, 1));
    FixedDraftLength length(drafted);
    BesidePasses sink(tracer, stand, after_loop);
    Coordinator coordinator(scorer, channel, drafted > 0 ? &drafter : nullptr, length, nullptr,
                            {.max_new_tokens = room, .eos = {}, .stop = {}}, [&] { return sink.enough(loops); });
    coordinator.generate(0, "", prompt, sink);
    return {sink.beside(), sink.score(), sink.draft()};
  };
  const TokenVerifier rule;
  const NothingStands nothing;
  const double alone = typical(rule, model, kBeside, 0, 0).beside;
  const double all = typical(rule, model, kBeside, kDrafted, kDrafted).beside;
  const Typical none_stand = typical(nothing, model, kBeside, kDrafted, 0);
  const double none = none_stand.beside;
  constexpr auto kTokens = static_cast<double>(kDrafted);
  WarmLoops found = {.loop = alone,
                     .pass = none_stand.draft,
                     .drafted = std::max((none - alone) / kTokens, 0.0),
                     .accepted = std::max((all - none) / kTokens, 0.0)};
  if (alone <= 0 || room < kScored.least + most_rows) return found;
  for (std::int64_t rows = 2; rows <= most_rows; ++rows) {
    found.scored.push_back(typical(nothing, smaller, kScored, rows - 1, 0).score);
  }
  return found;
}

}  // namespace specdec
