#include "runtime/decision.h"

#include <algorithm>

#include "backend/error.h"
#include "runtime/acceptance.h"

namespace specdec {
namespace {

std::span<const float> in_place(ConstRows rows) { return {rows.data, static_cast<std::size_t>(rows.rows * rows.cols)}; }

}  // namespace

Decision::Decision(ParallelHead& head, bool is_root, const SamplingParams& sampling, const Verifier& verifier,
                   std::uint64_t seed)
    : head_(head), is_root_(is_root), params_(sampling), sampler_(sampling), verifier_(verifier), seed_(seed) {
  if (!head.backend().on_host() && head.is_whole() && (sampling.greedy() || verifier.resamples_residual())) {
    in_place_ = std::make_unique<RowsInPlace>(head.backend(), sampling);
  }
}

Verdict Decision::decide(ConstRows logits, const Round& round, std::int64_t position, DraftBlock& draft) {
  tokens_.clear();
  q_.clear();
  for (std::size_t i = 1; i < round.rows.size(); ++i) {
    tokens_.push_back(round.rows[i].token);
    q_.push_back(round.rows[i].q);
  }
  entries_.clear();
  draw_uniforms(round, position);
  Verdict verdict = decide_by_rule(logits, round, position, draft);
  const std::optional<double> known = verifier_.next_known();
  if (known && round.drafted() > 0 && verdict.accepted == round.drafted()) {
    const std::int64_t next = position + 1 + verdict.accepted;
    if (uniform(key(round, next, Purpose::kAccept)) < *known) {
      verdict.next = synthetic_next(key(round, next, Purpose::kGuess), head_.vocabulary());
    }
  }
  return verdict;
}

Verdict Decision::decide_by_rule(ConstRows logits, const Round& round, std::int64_t position, DraftBlock& draft) {
  if (params_.greedy()) {
    return decide_greedy(logits, round, draft);
  }
  if (in_place_ != nullptr) {
    return decide_in_place(logits, round, position, draft);
  }
  if (!params_.truncates() && verifier_.needs() == VerifierNeeds::kDraftedEntries) {
    return decide_by_sums(logits, round, position, draft);
  }
  return decide_by_rows(logits, round, position, draft);
}

void Decision::read(DraftBlock& draft) {
  if (draft.unread != nullptr) {
    draft.unread->read(draft);
    tokens_ = draft.tokens;
    q_ = draft.q;
  }
}

Verdict Decision::decide_greedy(ConstRows logits, const Round& round, DraftBlock& draft) {
  best_.resize(round.rows.size());
  head_.argmax(logits, best_, Stream{});
  read(draft);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    entries_.push_back({.p = best_[i] == tokens_[i] ? 1.0F : 0.0F, .q = q_[i]});
  }
  Verdict verdict = summarise(accept(), round.drafted());
  // The target is a point mass, and so is its residual: only a token that is not the argmax is ever rejected.
  verdict.next = best_[static_cast<std::size_t>(verdict.accepted)];
  return verdict;
}

Verdict Decision::decide_by_sums(ConstRows logits, const Round& round, std::int64_t position, const DraftBlock& draft) {
  sums_.resize(round.rows.size());
  entry_z_.resize(tokens_.size());
  head_.sums(logits, params_.temperature, tokens_, sums_, entry_z_, Stream{});
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    entries_.push_back({.p = probability_from_sums(entry_z_[i], sums_[i].max, sums_[i].sum), .q = q_[i]});
  }
  Verdict verdict = summarise(accept(), round.drafted());

  const std::span<const float> row = whole_on_root(logits.slice_rows(verdict.accepted, 1));
  if (is_root_) {
    p_rows_.resize(row.size());
    const RowSum& sum = sums_[static_cast<std::size_t>(verdict.accepted)];
    probabilities_from_sums(row, params_.temperature, sum.max, sum.sum, p_rows_);
    verdict.next = draw_next(verdict.accepted, p_rows_, round, position, draft);
  }
  return verdict;
}

Verdict Decision::decide_by_rows(ConstRows logits, const Round& round, std::int64_t position, const DraftBlock& draft) {
  const std::span<const float> rows = whole_on_root(logits);
  if (!is_root_) {
    return {.decided = false};
  }
  const auto vocabulary = static_cast<std::size_t>(head_.vocabulary());
  p_rows_.resize(rows.size());
  const auto warped_row = [&](std::size_t row) {
    const auto p = std::span(p_rows_).subspan(row * vocabulary, vocabulary);
    sampler_.warp(rows.subspan(row * vocabulary, vocabulary), p);
    return p;
  };
  const auto learn_entry = [&](std::size_t i, std::span<const float> p) {
    entries_.push_back({.p = p[static_cast<std::size_t>(tokens_[i])], .q = q_[i]});
  };
  const std::size_t drafted = tokens_.size();
  std::size_t accepted = 0;
  std::span<const float> p = warped_row(0);
  if (verifier_.needs() == VerifierNeeds::kAllRows) {
    for (std::size_t i = 0; i < drafted; ++i) {
      learn_entry(i, p);
      p = warped_row(i + 1);
    }
    accepted = static_cast<std::size_t>(accept(dense_rows(draft)));
    p = std::span(p_rows_).subspan(accepted * vocabulary, vocabulary);
  } else {
    // A row is warped only when it is reached: rows after the first rejection are never looked at.
    while (accepted < drafted) {
      learn_entry(accepted, p);
      if (static_cast<std::size_t>(accept()) == accepted) {
        break;
      }
      p = warped_row(++accepted);
    }
  }
  Verdict verdict = summarise(static_cast<std::int64_t>(accepted), round.drafted());
  verdict.next = draw_next(verdict.accepted, p, round, position, draft);
  return verdict;
}

Verdict Decision::decide_in_place(ConstRows logits, const Round& round, std::int64_t position, DraftBlock& draft) {
  records_.assign(round.rows.size(), RowRecord{});
  for (std::size_t i = 0; i < records_.size(); ++i) {
    records_[i].uniform = next_uniform(round, position, static_cast<std::int64_t>(i));
    records_[i].asked = i < tokens_.size() ? tokens_[i] : -1;
  }
  in_place_->sample(logits, head_.slices(), draft, records_, Stream{});
  read(draft);
  std::size_t accepted = 0;
  for (; accepted < tokens_.size(); ++accepted) {
    require_sound(records_[accepted]);
    entries_.push_back({.p = records_[accepted].entry, .q = q_[accepted]});
    if (static_cast<std::size_t>(accept()) == accepted) {
      break;
    }
  }
  require_sound(records_[accepted]);
  Verdict verdict = summarise(static_cast<std::int64_t>(accepted), round.drafted());
  verdict.next = records_[accepted].token;
  check(verdict.next >= 0, "a token is drawn from weights of which one is positive");
  return verdict;
}

std::span<const float> Decision::dense_rows(const DraftBlock& draft) {
  if (draft.q_rows.rows > 0) {
    return on_host(draft.q_rows);
  }
  const auto vocabulary = static_cast<std::size_t>(head_.vocabulary());
  q_rows_.assign(tokens_.size() * vocabulary, 0.0F);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    q_rows_[i * vocabulary + static_cast<std::size_t>(tokens_[i])] = 1.0F;
  }
  return q_rows_;
}

bool Decision::lies_on_host(ConstRows rows) const {
  return head_.backend().on_host() && (rows.rows == 1 || rows.stride == rows.cols);
}

std::span<const float> Decision::whole_on_root(ConstRows logits) {
  if (head_.is_whole() && lies_on_host(logits)) {
    return in_place(logits);
  }
  logit_rows_.resize(is_root_ ? static_cast<std::size_t>(logits.rows * head_.vocabulary()) : 0);
  head_.gather_rows(logits, logit_rows_, Stream{});
  return logit_rows_;
}

std::span<const float> Decision::on_host(ConstRows rows) {
  if (lies_on_host(rows)) {
    return in_place(rows);
  }
  Backend& backend = head_.backend();
  q_rows_.resize(static_cast<std::size_t>(rows.rows * rows.cols));
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    backend.download(std::as_writable_bytes(std::span(q_rows_).subspan(r * rows.cols, rows.cols)),
                     reinterpret_cast<const std::byte*>(rows.row(r)), Stream{});
  }
  backend.synchronize(Stream{});
  return q_rows_;
}

std::int64_t Decision::accept(std::span<const float> q_rows) const {
  const std::size_t known = entries_.size();
  return verifier_.accept({.tokens = std::span(tokens_).first(known),
                           .entries = entries_,
                           .p_rows = q_rows.empty() ? std::span<const float>{} : std::span(p_rows_),
                           .q_rows = q_rows,
                           .vocabulary = head_.vocabulary()},
                          std::span(uniforms_).first(known));
}

Verdict Decision::summarise(std::int64_t accepted, std::int64_t drafted) const {
  Verdict verdict{.accepted = accepted, .reached = std::min(drafted, accepted + 1)};
  for (std::int64_t i = 0; i < verdict.reached; ++i) {
    verdict.beta_sum += verifier_.acceptance(entries_[static_cast<std::size_t>(i)]);
  }
  return verdict;
}

Token Decision::draw_next(std::int64_t accepted, std::span<const float> p, const Round& round, std::int64_t position,
                          const DraftBlock& draft) {
  std::span<const float> q;
  if (accepted < round.drafted()) {
    q = draft.q_rows.rows > 0 ? on_host(draft.q_rows.slice_rows(accepted, 1))
                              : dense_rows(draft).subspan(static_cast<std::size_t>(accepted) * p.size(), p.size());
  }
  weights_.resize(p.size());
  verifier_.next_weights(accepted, p, q, weights_);
  return draw(weights_, next_uniform(round, position, accepted));
}

double Decision::next_uniform(const Round& round, std::int64_t position, std::int64_t accepted) const {
  return uniform(key(round, position + 1 + accepted, Purpose::kResample));
}

void Decision::draw_uniforms(const Round& round, std::int64_t position) {
  uniforms_.clear();
  for (std::int64_t i = 0; i < round.drafted(); ++i) {
    uniforms_.push_back(uniform(key(round, position + 1 + i, Purpose::kAccept)));
  }
}

RandomKey Decision::key(const Round& round, std::int64_t position, Purpose purpose) const {
  return {.seed = seed_,
          .sequence = round.sequence,
          .round = round.number,
          .position = static_cast<std::uint32_t>(position),
          .level = 0,
          .branch = 0,
          .purpose = purpose};
}

}  // namespace specdec
