#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/byte_level_bpe.h"

namespace specdec {

/// Gathers the tables of a byte-level BPE from spelled tokens and checks that they belong together. `where` is file and
/// key, for errors.
class VocabularyBuilder {
 public:
  /// Throws kBadInput if the id is taken by another token.
  void add_token(const std::string& spelling, Token id, const std::string& where);
  /// An added token; it may repeat a token of the vocabulary under the same id.
  void add_added(const AddedToken& token, bool normalized, const std::string& where);
  /// The next merge in rank. Throws kBadInput unless both halves and the whole are tokens.
  void add_merge(const std::string& left, const std::string& right, const std::string& where);

  std::optional<Token> find(const std::string& spelling) const;
  /// One more than the largest id.
  Token size() const { return static_cast<Token>(pieces_.size()); }

  /// The parts, but for pretokenizer, prefix and suffix. The builder is empty afterwards.
  ByteLevelBpe::Parts build(bool ignore_merges, const std::optional<std::string>& unknown, bool fuse_unknown,
                            const std::string& where);

 private:
  void place(const std::string& spelling, Token id, const std::string& where);

  std::unordered_map<std::string, Token> by_spelling_;
  std::vector<std::optional<std::string>> pieces_;  // id -> bytes
  std::vector<std::string> spelling_;               // id -> spelling
  std::unordered_map<std::string, Token> whole_;    // bytes -> id, without added tokens
  std::vector<AddedToken> added_;
  std::vector<AddedToken> added_normalized_;
  BytePairMerges merges_;
  std::int32_t next_rank_ = 0;
};

}  // namespace specdec
