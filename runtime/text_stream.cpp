#include "runtime/text_stream.h"

#include <algorithm>

namespace specdec {
namespace {

/// Length of the longest suffix of `text` that is a proper prefix of `word`.
std::size_t overlap(std::string_view text, std::string_view word) {
  for (std::size_t length = std::min(text.size(), word.size() - 1); length > 0; --length) {
    if (text.ends_with(word.substr(0, length))) {
      return length;
    }
  }
  return 0;
}

}  // namespace

TextStream::TextStream(const Tokenizer* tokenizer, const std::vector<std::string>& stop)
    : tokenizer_(tokenizer), stop_(stop) {
  if (tokenizer_ != nullptr) {
    decoder_ = std::make_unique<StreamDecoder>(*tokenizer_);
  }
}

std::string TextStream::push(Token token) {
  return release(decoder_ ? decoder_->push(token) : std::to_string(token) + " ");
}

std::string TextStream::release(const std::string& text) {
  held_ += text;
  std::size_t end = std::string::npos;
  for (const std::string& word : stop_) {
    end = std::min(end, held_.find(word));
  }
  stopped_ = end != std::string::npos;
  if (!stopped_) {
    std::size_t hold = 0;
    for (const std::string& word : stop_) {
      hold = std::max(hold, overlap(held_, word));
    }
    end = held_.size() - hold;
  }
  std::string certain = held_.substr(0, end);
  held_.erase(0, end);
  return certain;
}

std::string TextStream::finish() {
  if (stopped_) {
    return {};
  }
  // The decoder's last bytes may complete a stop string, so they take the same way; after them nothing is uncertain any more.
  std::string text = release(decoder_ ? decoder_->finish() : std::string());
  if (!stopped_) {
    text += held_;
    held_.clear();
  }
  return text;
}

}  // namespace specdec
