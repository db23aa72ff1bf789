#include "runtime/rows_in_place.h"

#include "backend/error.h"

namespace specdec {

RowsInPlace::RowsInPlace(Backend& backend, const SamplingParams& params)
    : backend_(backend), params_(params), sampler_(backend.make_row_sampler(params)) {}

void RowsInPlace::bring(const UnreadDraft& draft, Token* tokens, Stream stream) {
  sampler_->hand_on(draft.records(), nullptr, tokens, stream);
}

void RowsInPlace::sample(ConstRows logits, std::span<const Range> slices, const DraftBlock& draft,
                         std::span<RowRecord> records, Stream stream) {
  check(std::ssize(records) == logits.rows, "each row of a round has its record");
  auto* const record = room<RowRecord>(records_, records.size());
  const Rows p{room<float>(p_rows_, static_cast<std::size_t>(logits.rows * logits.cols)), logits.rows, logits.cols,
               logits.cols};
  backend_.upload(reinterpret_cast<std::byte*>(record), std::as_bytes(records), stream);
  if (draft.unread != nullptr) {
    sampler_->hand_on(draft.unread->records(), record, nullptr, stream);
  }
  if (params_.truncates()) {
    sampler_->warp(logits, p, record, stream);
  } else {
    sampler_->sums(logits, slices, record, stream);
    sampler_->warp_with_sums(logits, p, record, stream);
  }
  sampler_->entries(p, record, stream);
  if (const std::int64_t drafted = logits.rows - 1; drafted > 0) {
    const Rows of_draft = p.slice_rows(0, drafted);
    sampler_->residuals(of_draft, draft_rows(draft, record, drafted, p.cols, stream), of_draft, stream);
  }
  sampler_->draw(p, record, nullptr, stream);
  backend_.download(std::as_writable_bytes(records), reinterpret_cast<const std::byte*>(record), stream);
  backend_.synchronize(stream);
}

ConstRows RowsInPlace::draft_rows(const DraftBlock& draft, const RowRecord* records, std::int64_t drafted,
                                  std::int64_t vocabulary, Stream stream) {
  if (draft.q_rows.rows > 0) {
    check(draft.q_rows.rows == drafted && draft.q_rows.cols == vocabulary, "a draft has a row for each token");
    return draft.q_rows;
  }
  const Rows q{room<float>(q_rows_, static_cast<std::size_t>(drafted * vocabulary)), drafted, vocabulary, vocabulary};
  sampler_->point_masses(records, q, stream);
  return q;
}

template <typename T>
T* RowsInPlace::room(std::unique_ptr<Buffer>& memory, std::size_t count) {
  if (memory == nullptr || memory->bytes() < count * sizeof(T)) {
    memory = backend_.allocate(count * sizeof(T));  // the last call waited for all that used the old one
  }
  return reinterpret_cast<T*>(memory->data());
}

}  // namespace specdec
