#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

/// Lists of enumerators, such as kPlacements, by their name_of().
namespace specdec {

/// As users write them.
template <typename Values>
std::vector<std::string> names_of(const Values& values) {
  std::vector<std::string> names;
  for (const auto value : values) names.emplace_back(name_of(value));
  return names;
}

/// The one with this name, which is among names_of(values).
template <typename Values>
constexpr auto value_named(const Values& values, std::string_view name) {
  return *std::ranges::find(values, name, [](auto value) { return name_of(value); });
}

}  // namespace specdec
