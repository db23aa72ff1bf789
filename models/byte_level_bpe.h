#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/added_tokens.h"
#include "models/pretokenizer.h"
#include "models/tokenizer.h"

namespace specdec {

/// What two adjacent tokens merge into; the lowest rank goes first.
struct Merge {
  std::int32_t rank = 0;
  Token merged = 0;
};

/// Byte-pair merges of one piece of text. Time is n log n in its bytes, whatever the text.
class BytePairMerges {
 public:
  static std::uint64_t key(Token left, Token right) {
    return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32U) | static_cast<std::uint32_t>(right);
  }

  std::array<std::optional<Token>, 256> byte_token;  ///< a byte without a token becomes `unknown`, or vanishes
  std::optional<Token> unknown;
  bool fuse_unknown = false;  ///< a run of such bytes is one `unknown`
  std::unordered_map<std::uint64_t, Merge> merges;

  /// Appends the tokens of `bytes`.
  void encode(std::string_view bytes, std::vector<Token>& out) const;
};

/// Hash of an id -> bytes table, for Tokenizer::fingerprint(); an id without a token has no value.
std::uint64_t hash_pieces(const std::vector<std::optional<std::string>>& pieces);

/// Byte-level BPE as GPT-2 and Llama 3 use it. read_tokenizer_json and read_vocab_and_merges fill in the parts.
class ByteLevelBpe : public Tokenizer {
 public:
  struct Parts {
    std::vector<std::optional<std::string>> pieces;  ///< id -> bytes, added tokens included
    std::unordered_map<std::string, Token> whole;    ///< bytes -> id for ignore_merges; empty without it
    BytePairMerges merges;
    Pretokenizer pretokenizer{{}};
    AddedTokens added;             ///< found first
    AddedTokens added_normalized;  ///< found in what `added` leaves
    std::vector<Token> prefix;     ///< ids that add_special puts around the text
    std::vector<Token> suffix;
  };

  explicit ByteLevelBpe(Parts parts);

  std::vector<Token> encode(std::string_view text, bool add_special) const override;
  std::string decode(std::span<const Token> tokens, bool skip_special) const override;
  std::string append_bytes(Token token, bool& at_start) const override;
  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(parts_.pieces.size()); }
  std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  std::string_view piece(Token token) const;

  Parts parts_;
  std::vector<bool> special_;  // by id
  std::uint64_t fingerprint_;
};

}  // namespace specdec
