#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/added_tokens.h"
#include "models/tokenizer.h"

namespace specdec {

/// A SentencePiece `tokenizer.model` (BPE or unigram), read and run by libsentencepiece, with `transformers`' rules for
/// special tokens:
///
/// - Text without special tokens gives the ids of sentencepiece itself, also where it begins with a space (`transformers` 5 puts no second
///   space before such a text).
/// - The unknown and the control pieces, and the tokens of added_tokens.json and of tokenizer_config.json's added_tokens_decoder, are
///   recognised in the text. What follows one gets SentencePiece's leading space only if tokenizer_config.json says `"legacy": true`.
/// - add_special puts BOS before (unless `"add_bos_token": false`) and EOS behind (if `"add_eos_token": true`).
/// - decode() writes special tokens as they are spelled, and drops the leading space that encoding added. Byte pieces are bytes.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// Reads DIR/tokenizer.model and what lies beside it. Throws kBadInput naming file and key.
  explicit SentencePieceTokenizer(const std::filesystem::path& directory);
  ~SentencePieceTokenizer() override;

  std::vector<Token> encode(std::string_view text, bool add_special) const override;
  std::string decode(std::span<const Token> tokens, bool skip_special) const override;
  std::string append_bytes(Token token, bool& at_start) const override;
  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(pieces_.size()); }
  std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  class Library;

  void read_pieces();
  void read_companions(const std::filesystem::path& directory);
  void add(AddedToken token, const std::string& where);
  void find_space_rule();

  std::unique_ptr<Library> library_;
  std::vector<std::optional<std::string>> pieces_;  // id -> bytes, the leading space of a word included
  std::vector<bool> verbatim_;                      // id -> spelled as it is, its leading space kept
  std::vector<bool> special_;                       // id -> left out by skip_special
  std::vector<AddedToken> found_in_text_;           // until added_ is made of them
  AddedTokens added_;
  std::optional<Token> bos_;
  std::optional<Token> eos_;
  bool legacy_ = false;
  bool drop_first_space_ = false;  // decode() leaves out the space that begins the first word
  bool drop_all_spaces_ = false;   // and the pieces of nothing but space before it
  std::uint64_t fingerprint_ = 0;
};

}  // namespace specdec
