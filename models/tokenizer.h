#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/config.h"

namespace specdec {

/// Text to tokens and back, agreeing with Hugging Face `tokenizers`. Made by load_tokenizer from the files of a model
/// directory.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Special tokens that stand in the text are recognised, as Hugging Face does; none are added unless `add_special`
  /// (then what the directory's post-processor or tokenizer_config adds: a BOS, say). Throws kBadInput for invalid
  /// UTF-8, naming the byte.
  virtual std::vector<Token> encode(std::string_view text, bool add_special = false) const = 0;
  /// The bytes of the tokens. They need not be whole UTF-8 characters; StreamDecoder holds back what is not.
  /// Special tokens are left out when `skip_special`. Ids without a token (padded vocabularies) have no bytes.
  virtual std::string decode(std::span<const Token> tokens, bool skip_special = false) const = 0;
  /// The bytes that `token` adds to a text. `at_start` says whether the text is still empty (SentencePiece drops the
  /// space that it put there itself) and is updated; decode() is this over all tokens.
  virtual std::string append_bytes(Token token, bool& at_start) const {
    at_start = false;
    return decode({&token, 1});
  }
  /// Number of ids, added tokens included.
  virtual std::int64_t vocabulary() const = 0;
  /// Hash of the id -> bytes table: equal for two tokenizers that read and write the same ids.
  virtual std::uint64_t fingerprint() const = 0;
};

/// Reads tokenizer.json, else vocab.json + merges.txt, else tokenizer.model. Throws kBadInput naming file and what was
/// expected. A tokenizer.json that only spells out a SentencePiece model (byte_fallback or Unigram) gives way to the
/// tokenizer.model beside it.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory);
/// Whether the directory holds any tokenizer at all.
bool has_tokenizer(const std::filesystem::path& directory);

/// Speculative decoding compares probabilities id by id, so both models must read and write the same ids. Throws
/// kBadInput with both sizes, the first id that differs and its two pieces.
void require_same_vocabulary(const Tokenizer& target, const Tokenizer& draft);

/// Turns a growing sequence of tokens into text that never ends in half a character. What comes out over all calls,
/// finish() included, is decode() of all tokens with invalid UTF-8 replaced by U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  /// Text that became certain with `token`.
  std::string push(Token token);
  /// What was still held back.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string held_;
  bool at_start_ = true;
};

}  // namespace specdec
