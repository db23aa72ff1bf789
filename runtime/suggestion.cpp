#include "runtime/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace specdec {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

/// Index of the candidate that a typing error is nearest to; nothing when none is near.
std::optional<std::size_t> nearest(std::string_view name, std::span<const std::string> candidates) {
  const std::string_view probe = name.substr(0, 80);
  std::size_t best = std::max<std::size_t>(2, probe.size() / 4) + 1;
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::size_t distance = edit_distance(probe, candidates[i]);
    if (distance < best && distance < candidates[i].size()) {
      best = distance;
      found = i;
    }
  }
  return found;
}

std::string did_you_mean(std::string_view candidate) { return fmt::format("; did you mean '{}'?", candidate); }

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

std::string suggestion(std::string_view name, std::span<const std::string> candidates) {
  const auto near = nearest(name, candidates);
  return near ? did_you_mean(candidates[*near]) : "";
}

std::string key_suggestion(std::string_view name, std::span<const std::string> keys) {
  if (std::string near = suggestion(name, keys); !near.empty()) return near;
  std::vector<std::string> parts;
  parts.reserve(keys.size());
  for (const std::string& key : keys) parts.emplace_back(last_part(key));
  const auto near = nearest(last_part(name), parts);
  return near ? did_you_mean(keys[*near]) : "";
}

}  // namespace specdec
