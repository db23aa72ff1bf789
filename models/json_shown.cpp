#include "models/json_shown.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/utf8.h"

namespace specdec {

std::string shown(const nlohmann::json& value) {
  constexpr std::size_t kLongest = 60;
  if (value.is_structured() && value.size() > 8) {
    return value.is_array() ? fmt::format("a list of {}", value.size()) : "an object";
  }
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() <= kLongest) return text;
  text.resize(kLongest);
  return take_valid_utf8(text, false) + "...";
}

}  // namespace specdec
