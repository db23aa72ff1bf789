#include "runtime/model_drafter.h"

#include <algorithm>
#include <numeric>

#include "backend/error.h"
#include "runtime/pass_moments.h"

namespace specdec {
namespace {

constexpr TraceKind kDraftPrefill{.name = "draft prefill", .value = "tokens"};
constexpr TraceKind kDraftChoose{.name = "draft choose"};
constexpr TraceKind kDraftWait{.name = "draft wait", .value = "tokens"};

}  // namespace

const TraceKind ModelDrafter::kPass{.name = "draft pass", .value = "rows"};

ModelDrafter::ModelDrafter(Transformer& model, const SamplingParams& sampling, std::uint64_t seed, std::uint8_t level,
                           Tracer* tracer, bool together)
    : model_(model),
      backend_(model.head().backend()),
      cache_(model.make_cache()),
      sampling_(sampling),
      sampler_(backend_.make_row_sampler(sampling)),
      seed_(seed),
      level_(level),
      tracer_(tracer),
      together_(together),
      moments_(backend_.make_moments(kPassMoments)) {
  const bool is_cut = !model.head().is_whole();
  check(together || !is_cut, "ModelDrafter: a draft that is cut over ranks drafts on all of them");
  if (is_cut) whole_ = backend_.allocate(static_cast<std::size_t>(model.head().vocabulary()) * sizeof(float));
}

std::int64_t ModelDrafter::room(std::int64_t history_size) const { return room(cache_.capacity(), history_size); }

std::int64_t ModelDrafter::room(std::int64_t capacity, std::int64_t history_size) {
  // The last drafted token is never fed, so position history_size + k - 2 is the last one that must exist.
  return std::max<std::int64_t>(0, capacity - history_size + 1);
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

ConstRows ModelDrafter::feed(std::span<const Token> tokens, std::int32_t count) {
  const Span span(tracer_, kPass, count);
  const auto first = static_cast<std::int32_t>(cache_.committed() + cache_.pending());
  position_.clear();
  parent_.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    position_.push_back(first + i);
    parent_.push_back(i - 1);
  }
  return model_.forward({tokens, position_, parent_}, cache_, LogitRows::kLast, Stream{});
}

ConstRows ModelDrafter::catch_up(std::span<const Token> history, std::int64_t standing) {
  // Of what was fed in earlier rounds, the part that the history confirms stays; but its last token is fed in any case, for the logits
  // after it. (A rejected token can come back as the next one, when the residual vanished.)
  const auto seen = history.first(history.size() - 1).subspan(static_cast<std::size_t>(cache_.committed()));
  const auto confirmed = std::mismatch(pending_.begin(), pending_.end(), seen.begin(), seen.end()).first;
  const auto kept = confirmed - pending_.begin();
  const auto final = std::clamp<std::int64_t>(standing - 1 - cache_.committed(), 0, kept);
  cache_.commit_prefix(final, kept - final);
  pending_.erase(confirmed, pending_.end());
  pending_.erase(pending_.begin(), pending_.begin() + final);

  // Long gaps (rounds without drafting) go in blocks; what is left, one or two tokens as a rule, is the first pass of the round.
  constexpr std::int64_t kFirstPassRows = 2;
  const std::int64_t gap = std::ssize(history) - cache_.committed() - cache_.pending() - kFirstPassRows;
  if (gap > 0) {
    model_.prefill(history.subspan(static_cast<std::size_t>(cache_.committed()), static_cast<std::size_t>(gap)), cache_,
                   Stream{});
  }
  const auto rest = history.subspan(static_cast<std::size_t>(cache_.committed() + cache_.pending()));
  pending_.insert(pending_.end(), rest.begin(), rest.end());
  return feed(rest, static_cast<std::int32_t>(rest.size()));
}

void ModelDrafter::ask(RandomKey key, std::int64_t k) {
  const std::int64_t vocabulary = model_.head().vocabulary();
  if (asked_ == nullptr || asked_->bytes() < static_cast<std::size_t>(k) * sizeof(RowRecord)) {
    // The host has waited for all that used the old ones.
    asked_ = backend_.allocate(static_cast<std::size_t>(k) * sizeof(RowRecord));
    distributions_ =
        backend_.allocate(sampling_.greedy() ? 0 : static_cast<std::size_t>(k * vocabulary) * sizeof(float));
  }
  records_.assign(static_cast<std::size_t>(k), RowRecord{});
  for (RowRecord& record : records_) {
    record.uniform = uniform(key);
    ++key.position;
  }
  backend_.upload(asked_->data(), std::as_bytes(std::span(records_)), Stream{});
}

ConstRows ModelDrafter::whole(ConstRows logits) {
  if (whole_ == nullptr) return logits;
  const std::int64_t vocabulary = model_.head().vocabulary();
  const Rows row{whole_->floats(), 1, vocabulary, vocabulary};
  model_.head().whole_rows(logits, row, Stream{});
  return row;
}

void ModelDrafter::choose(ConstRows part, std::int64_t index) {
  const Span span(tracer_, kDraftChoose);
  const ConstRows logits = whole(part);
  RowRecord* const record = reinterpret_cast<RowRecord*>(asked_->data()) + index;
  if (sampling_.greedy()) {
    sampler_->argmax(logits, record, model_.tokens(), Stream{});
    return;
  }
  const Rows q{distributions_->floats() + index * logits.cols, 1, logits.cols, logits.cols};
  sampler_->warp(logits, q, record, Stream{});
  sampler_->draw(q, record, model_.tokens(), Stream{});
}

void ModelDrafter::mark(int moment) {
  if (moments_ != nullptr) {
    moments_->mark(moment);
  }
}

void ModelDrafter::leave(std::int64_t k, DraftBlock& block) {
  backend_.download(std::as_writable_bytes(std::span(records_)), asked_->data(), Stream{});
  const auto count = static_cast<std::size_t>(k);
  block.tokens.assign(count, DraftBlock::kUnread);
  block.q.assign(count, 0.0F);
  block.parent.resize(count);
  std::iota(block.parent.begin(), block.parent.end(), -1);
  if (!sampling_.greedy()) {
    const std::int64_t vocabulary = model_.head().vocabulary();
    block.q_rows = {distributions_->floats(), k, vocabulary, vocabulary};
  }
  block.unread = this;
}

std::span<const RowRecord> ModelDrafter::records() const {
  return {reinterpret_cast<const RowRecord*>(asked_->data()), records_.size()};
}

void ModelDrafter::wait() {
  const Span span(tracer_, kDraftWait, std::ssize(records_));
  backend_.synchronize(Stream{});
}

void ModelDrafter::read(DraftBlock& block) {
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const RowRecord& record = records_[i];
    require_sound(record);
    check(record.token >= 0, "ModelDrafter: a token was drawn");
    block.tokens[i] = record.token;
    block.q[i] = sampling_.greedy() ? 1.0F : record.weight;
  }
  pending_.insert(pending_.end(), block.tokens.begin(), block.tokens.end() - 1);
  if (moments_ != nullptr) {
    block.seconds = moments_->between(kPassBegin, kPassEnd);
  }
  block.unread = nullptr;
}

void ModelDrafter::propose(std::uint32_t round, std::span<const Token> history, std::int64_t k, DraftBlock& block) {
  propose_ahead(round, history, std::ssize(history), k, block);
}

void ModelDrafter::propose_ahead(std::uint32_t round, std::span<const Token> history, std::int64_t standing,
                                 std::int64_t k, DraftBlock& block) {
  draft({.seed = seed_,
         .sequence = sequence_,
         .round = round,
         .position = static_cast<std::uint32_t>(history.size()),
         .level = level_,
         .purpose = Purpose::kDraft},
        history, standing, k, block);
}

void ModelDrafter::guess(std::uint32_t round, std::span<const Token> history, std::int64_t standing,
                         DraftBlock& block) {
  draft({.seed = seed_,
         .sequence = sequence_,
         .round = round,
         .position = static_cast<std::uint32_t>(history.size()),
         .level = static_cast<std::uint8_t>(level_ - 1),
         .purpose = Purpose::kResample},
        history, standing, 1, block);
}

void ModelDrafter::draft(const RandomKey& first, std::span<const Token> history, std::int64_t standing, std::int64_t k,
                         DraftBlock& block) {
  block.clear();
  if (k == 0) {
    return;
  }
  check(k <= room(std::ssize(history)), "ModelDrafter: asked for more tokens than its context holds");
  mark(kPassBegin);
  ask(first, k);
  choose(catch_up(history, standing), 0);
  for (std::int64_t i = 1; i < k; ++i) {
    choose(feed({}, 1), i);
  }
  mark(kPassEnd);
  leave(k, block);
}

}  // namespace specdec
