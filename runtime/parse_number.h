#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace specdec {

/// All of `text` as one number, without white space or a plus sign; nothing when it is none or does not fit. "nan" and "inf" are
/// floating-point numbers.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace specdec
