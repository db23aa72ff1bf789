#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/config.h"
#include "models/regex.h"

namespace specdec {

/// A token that is recognised in the text before anything else sees it; the flags are those of `tokenizers`'
/// AddedToken.
struct AddedToken {
  Token id = 0;
  std::string content;
  bool special = false;      ///< decode() can leave it out
  bool single_word = false;  ///< not recognised inside a word
  bool left_strip = false;   ///< takes the white space before it
  bool right_strip = false;  ///< takes the white space after it
};

class JsonNode;
/// Reads an AddedToken as tokenizer files describe one: `content` and the flags.
AddedToken read_added_token(const JsonNode& node, Token id);

/// Finds added tokens in a text: the leftmost, and of those that begin there the longest.
class AddedTokens {
 public:
  AddedTokens() : AddedTokens(std::vector<AddedToken>{}) {}
  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// Calls `token` and `text` in the order of the text (valid UTF-8); `text` never gets an empty stretch.
  void split(std::string_view all, const std::function<void(Token)>& token,
             const std::function<void(std::string_view)>& text) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  const AddedToken* longest_at(std::string_view all, std::size_t at) const;
  bool inside_word(std::string_view all, std::size_t begin, std::size_t end) const;

  std::vector<AddedToken> tokens_;
  std::array<std::vector<std::uint32_t>, 256> by_first_byte_;  // longest first
  Regex word_;
  Regex space_;
};

}  // namespace specdec
