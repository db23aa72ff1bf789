#include "runtime/published.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "backend/error.h"
#include "runtime/config_prompts.h"
#include "runtime/file_keys.h"
#include "runtime/paths.h"

namespace specdec {
namespace {

FileKey numbers(const std::string& name, std::vector<double>& into) {
  constexpr const char* kAccepts = "a list of numbers from 0";
  return file_key::required(
      file_key::list<double>(name, kAccepts, into, [name](const YAML::Node& node, const YamlPlace& place) {
        return read_number(place, node, name, kAccepts, [](double v) { return v >= 0; });
      }));
}

}  // namespace

Published load_published(const std::string& name, const std::string& place) {
  const std::filesystem::path file = find_published(name, place);
  Published out;
  out.name = file.stem();
  const std::string where = fmt::format("{}: {}", place, file.string());
  read_file_keys(read_named_file(file, place), where,
                 {file_key::required(file_key::text("title", "a title", out.title)),
                  file_key::required(file_key::text("source", "where the figures are from", out.source)),
                  numbers("k", out.k), numbers("ms_128", out.ms_128),
                  numbers("tokens_per_loop_over_k1", out.efficiency), numbers("ms_per_loop", out.ms_per_loop)});
  for (const std::vector<double>* list : {&out.ms_128, &out.efficiency, &out.ms_per_loop}) {
    if (list->size() != out.k.size()) {
      throw_bad_input(fmt::format("{}: found lists of {} and {} numbers, expected one for each K", where, out.k.size(),
                                  list->size()));
    }
  }
  return out;
}

}  // namespace specdec
