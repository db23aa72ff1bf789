#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer.h"

namespace specdec {

/// Turns the tokens of one continuation into text that is certain: no half characters, nothing that might yet turn out to be part of a
/// stop string. Without a tokenizer the text is the ids, a space after each.
class TextStream {
 public:
  TextStream(const Tokenizer* tokenizer, const std::vector<std::string>& stop);

  /// Adds a token and returns the text that became certain. Once stopped() is true, the text ends before the stop string.
  std::string push(Token token);
  bool stopped() const { return stopped_; }
  /// What was still held back, at the end of a sequence that no stop string ended.
  std::string finish();

 private:
  std::string release(const std::string& text);

  const Tokenizer* tokenizer_;
  std::unique_ptr<StreamDecoder> decoder_;
  const std::vector<std::string>& stop_;
  std::string held_;  ///< text that a stop string may begin in
  bool stopped_ = false;
};

}  // namespace specdec
