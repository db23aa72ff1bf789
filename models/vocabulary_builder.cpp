#include "models/vocabulary_builder.h"

#include <fmt/format.h>

#include <utility>

#include "backend/error.h"
#include "models/byte_alphabet.h"

namespace specdec {

void VocabularyBuilder::add_token(const std::string& spelling, Token id, const std::string& where) {
  place(spelling, id, where);
  if (const auto bytes = bytes_of_spelling(spelling)) whole_.emplace(*bytes, id);
}

void VocabularyBuilder::place(const std::string& spelling, Token id, const std::string& where) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= pieces_.size()) {
    pieces_.resize(index + 1);
    spelling_.resize(index + 1);
  }
  if (pieces_[index]) {
    throw_bad_input(fmt::format("{}: found id {} for '{}', which '{}' has already, expected one token an id", where, id,
                                spelling, spelling_[index]));
  }
  // A spelling outside the byte alphabet stands for itself, as in `tokenizers`.
  pieces_[index] = bytes_of_spelling(spelling).value_or(spelling);
  spelling_[index] = spelling;
  by_spelling_.emplace(spelling, id);
}

void VocabularyBuilder::add_added(const AddedToken& token, bool normalized, const std::string& where) {
  if (token.content.empty()) throw_bad_input(fmt::format("{}: found an empty content, expected a token", where));
  if (const auto known = find(token.content)) {
    if (*known != token.id) {
      throw_bad_input(
          fmt::format("{}: found id {} for '{}', expected {} as before", where, token.id, token.content, *known));
    }
  } else {
    place(token.content, token.id, where);
  }
  (normalized ? added_normalized_ : added_).push_back(token);
}

void VocabularyBuilder::add_merge(const std::string& left, const std::string& right, const std::string& where) {
  const auto known = [&](const std::string& spelling) {
    const auto id = find(spelling);
    if (!id) throw_bad_input(fmt::format("{}: found '{}', expected a token of the vocabulary", where, spelling));
    return *id;
  };
  const Merge merge{next_rank_++, known(left + right)};
  merges_.merges.insert_or_assign(BytePairMerges::key(known(left), known(right)), merge);
}

std::optional<Token> VocabularyBuilder::find(const std::string& spelling) const {
  const auto found = by_spelling_.find(spelling);
  if (found == by_spelling_.end()) return std::nullopt;
  return found->second;
}

ByteLevelBpe::Parts VocabularyBuilder::build(bool ignore_merges, const std::optional<std::string>& unknown,
                                             bool fuse_unknown, const std::string& where) {
  if (pieces_.empty()) throw_bad_input(fmt::format("{}: found no token, expected a vocabulary", where));
  for (int byte = 0; byte < 256; ++byte) {
    merges_.byte_token[byte] = find(spelling_of_bytes(std::string(1, static_cast<char>(byte))));
  }
  if (unknown) {
    merges_.unknown = find(*unknown);
    if (!merges_.unknown) {
      throw_bad_input(fmt::format("{}.unk_token: found '{}', expected a token of the vocabulary", where, *unknown));
    }
  }
  merges_.fuse_unknown = fuse_unknown;
  ByteLevelBpe::Parts parts;
  parts.pieces = std::move(pieces_);
  if (ignore_merges) parts.whole = std::move(whole_);
  parts.merges = std::move(merges_);
  parts.added = AddedTokens(std::move(added_));
  parts.added_normalized = AddedTokens(std::move(added_normalized_));
  *this = {};
  return parts;
}

}  // namespace specdec
