#include "models/json_shown.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace specdec {

std::string shown(const nlohmann::json& value) {
  constexpr std::size_t kLongest = 60;
  if (value.is_structured() && value.size() > 8) {
    return value.is_array() ? fmt::format("a list of {}", value.size()) : "an object";
  }
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kLongest) {
    text.replace(kLongest, std::string::npos, "...");
  }
  return text;
}

}  // namespace specdec
