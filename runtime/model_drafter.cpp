#include "runtime/model_drafter.h"

#include <algorithm>
#include <array>

#include "backend/error.h"

namespace specdec {
namespace {

constexpr TraceKind kDraftPrefill{.name = "draft prefill", .value = "tokens"};
constexpr TraceKind kDraftPass{.name = "draft pass", .value = "rows"};
constexpr TraceKind kDraftChoose{.name = "draft choose"};

}  // namespace

ModelDrafter::ModelDrafter(Transformer& model, const SamplingParams& sampling, std::uint64_t seed, std::uint8_t level,
                           Tracer* tracer)
    : model_(model),
      cache_(model.make_cache()),
      sampler_(sampling),
      seed_(seed),
      level_(level),
      tracer_(tracer),
      logits_(static_cast<std::size_t>(model.config().vocabulary)) {}

std::int64_t ModelDrafter::room(std::int64_t history_size) const {
  // The last drafted token is never fed, so position history_size + k - 2 is the last one that must exist.
  return std::max<std::int64_t>(0, cache_.capacity() - history_size + 1);
}

void ModelDrafter::begin(std::uint32_t sequence, std::span<const Token> prompt) {
  sequence_ = sequence;
  cache_.clear();
  pending_.clear();
  const auto context = static_cast<std::int64_t>(prompt.size()) - 1;
  if (context > 0 && context <= cache_.capacity()) {
    const Span span(tracer_, kDraftPrefill, context);
    model_.prefill(prompt.first(static_cast<std::size_t>(context)), cache_, Stream{});
  }
}

ConstRows ModelDrafter::feed(std::span<const Token> tokens) {
  const Span span(tracer_, kDraftPass, static_cast<std::int64_t>(tokens.size()));
  const auto count = static_cast<std::int32_t>(tokens.size());
  const auto first = static_cast<std::int32_t>(cache_.committed() + cache_.pending());
  position_.clear();
  parent_.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    position_.push_back(first + i);
    parent_.push_back(i - 1);
  }
  pending_.insert(pending_.end(), tokens.begin(), tokens.end());
  return model_.forward({tokens, position_, parent_}, cache_, LogitRows::kLast, Stream{});
}

void ModelDrafter::choose(ConstRows logits, const RandomKey& key, DraftBlock& block) {
  const Span span(tracer_, kDraftChoose);
  const std::size_t vocabulary = logits_.size();
  Token token = 0;
  if (sampler_.params().greedy()) {
    model_.head().argmax(logits, {&token, 1}, Stream{});
    block.q.push_back(1.0F);
  } else {
    model_.head().gather_rows(logits, logits_, Stream{});
    block.q_rows.resize(block.q_rows.size() + vocabulary);
    const std::span<float> q = std::span(block.q_rows).last(vocabulary);
    sampler_.warp(logits_, q);
    token = draw(q, uniform(key));
    block.q.push_back(q[static_cast<std::size_t>(token)]);
  }
  block.parent.push_back(static_cast<std::int32_t>(block.tokens.size()) - 1);
  block.tokens.push_back(token);
}

void ModelDrafter::propose(std::uint32_t round, std::span<const Token> history, std::int64_t k, DraftBlock& block) {
  block.clear();
  if (k == 0) {
    return;
  }
  const auto size = static_cast<std::int64_t>(history.size());
  check(k <= room(size), "ModelDrafter: asked for more tokens than its context holds");

  // Of what was fed in earlier rounds, the part that the history confirms stays; but its last token is fed in any case, for the logits
  // after it. (A rejected token can come back as the next one, when the residual vanished.)
  const auto seen = history.first(history.size() - 1).subspan(static_cast<std::size_t>(cache_.committed()));
  const auto confirmed = std::mismatch(pending_.begin(), pending_.end(), seen.begin(), seen.end()).first;
  cache_.commit_prefix(confirmed - pending_.begin());
  pending_.clear();

  // Long gaps (rounds without drafting) go in blocks; what is left, one or two tokens as a rule, is the first pass of the round.
  constexpr std::int64_t kFirstPassRows = 2;
  const std::int64_t gap = size - cache_.committed() - kFirstPassRows;
  if (gap > 0) {
    model_.prefill(history.subspan(static_cast<std::size_t>(cache_.committed()), static_cast<std::size_t>(gap)), cache_,
                   Stream{});
  }
  ConstRows logits = feed(history.subspan(static_cast<std::size_t>(cache_.committed())));
  for (std::int64_t i = 0;; ++i) {
    choose(logits,
           {.seed = seed_,
            .sequence = sequence_,
            .round = round,
            .position = static_cast<std::uint32_t>(size + i),
            .level = level_,
            .purpose = Purpose::kDraft},
           block);
    if (i + 1 == k) {
      return;
    }
    const std::array<Token, 1> last{block.tokens.back()};
    logits = feed(last);
  }
}

}  // namespace specdec
