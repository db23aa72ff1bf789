#include "models/token_ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "backend/error.h"

namespace specdec {

std::vector<Token> parse_token_ids(std::string_view text, std::int64_t vocabulary, const std::string& place) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  constexpr std::size_t kShown = 40;
  std::vector<Token> ids;
  for (std::size_t at = text.find_first_not_of(kSpace); at != std::string_view::npos;
       at = text.find_first_not_of(kSpace, at)) {
    const std::size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    Token id = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0 || id >= vocabulary) {
      throw_bad_input(fmt::format("{}: id {}: found '{}', expected a number from 0 to {}", place, ids.size() + 1,
                                  word.substr(0, kShown), vocabulary - 1));
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

}  // namespace specdec
