#include "runtime/yaml_map.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "backend/error.h"
#include "models/utf8.h"
#include "runtime/config_keys.h"

namespace specdec {
namespace {

std::size_t line_of(std::string_view text, std::size_t offset) {
  return 1 +
         static_cast<std::size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
}

}  // namespace

void require_yaml_text(const std::string& yaml, const std::string& name) {
  if (const auto nul = yaml.find('\0'); nul != std::string::npos) {
    throw_bad_input(fmt::format("{}:{}: found a NUL byte, expected YAML text", name, line_of(yaml, nul)));
  }
  if (const auto bad = first_invalid_utf8(yaml)) {
    throw_bad_input(
        fmt::format("{}:{}: found a byte that is not UTF-8, expected YAML text", name, line_of(yaml, *bad)));
  }
}

YAML::Node read_yaml_map(const std::string& yaml, const std::string& name) {
  require_yaml_text(yaml, name);
  std::vector<YAML::Node> documents;
  try {
    documents = YAML::LoadAll(yaml);
  } catch (const YAML::Exception& error) {
    throw_bad_input(
        fmt::format("{}:{}: found broken YAML ({}), expected a map of keys", name, error.mark.line + 1, error.msg));
  }
  if (documents.size() > 1) {
    throw_bad_input(fmt::format("{}: found {} YAML documents, expected one", name, documents.size()));
  }
  if (documents.empty() || !documents[0].IsMap()) {
    throw_bad_input(fmt::format("{}: found {}, expected a map of keys", name,
                                documents.empty() ? "nothing" : describe(documents[0])));
  }
  return documents[0];
}

}  // namespace specdec
