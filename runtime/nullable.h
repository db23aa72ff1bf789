#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace specdec {

/// A figure of a report, times `scale`, or null where it is missing.
template <class Json = nlohmann::json>
Json nullable(const std::optional<double>& value, double scale = 1) {
  return value ? Json(*value * scale) : Json();
}

}  // namespace specdec
