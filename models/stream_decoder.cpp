#include "models/tokenizer.h"
#include "models/utf8.h"

namespace specdec {

std::string StreamDecoder::push(Token token) {
  held_ += tokenizer_->append_bytes(token, at_start_);
  return take_valid_utf8(held_, false);
}

std::string StreamDecoder::finish() { return take_valid_utf8(held_, true); }

}  // namespace specdec
