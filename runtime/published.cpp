#include "runtime/published.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "backend/error.h"
#include "runtime/config_prompts.h"
#include "runtime/file_keys.h"
#include "runtime/paths.h"

namespace specdec {
namespace {

FileKey numbers(const std::string& name, std::vector<double>& into, const char* accepts, bool (*accept)(double)) {
  return file_key::required(file_key::list<double>(
      name, accepts, into,
      [=](const YAML::Node& node, const YamlPlace& place) { return read_number(place, node, name, accepts, accept); }));
}

FileKey lengths(const std::string& name, std::vector<double>& into) {
  return numbers(name, into, "a list of numbers from 0", [](double v) { return v >= 0; });
}

/// What a report divides by.
FileKey measures(const std::string& name, std::vector<double>& into) {
  return numbers(name, into, "a list of numbers above 0", [](double v) { return v > 0; });
}

FileKey words(const std::string& name, std::vector<std::string>& into) {
  constexpr const char* kAccepts = "a list of names";
  return file_key::required(
      file_key::list<std::string>(name, kAccepts, into, [name](const YAML::Node& node, const YamlPlace& place) {
        if (!node.IsScalar() || node.Scalar().empty()) reject(place, node, name, describe(node), kAccepts);
        return node.Scalar();
      }));
}

}  // namespace

Published load_published(const std::string& name, const std::string& place) {
  const std::filesystem::path file = find_published(name, place);
  Published out;
  out.name = file.stem();
  const std::string where = fmt::format("{}: {}", place, file.string());
  std::vector<std::string> tasks;
  std::vector<double> table_k;
  std::vector<double> ms_alone;
  std::vector<double> ms;
  std::vector<double> speedup;
  read_file_keys(
      read_named_file(file, place), where,
      {file_key::required(file_key::text("title", "a title", out.title)),
       file_key::required(file_key::text("source", "where the figures are from", out.source)), lengths("k", out.k),
       measures("ms_128", out.ms_128), measures("tokens_per_loop_over_k1", out.efficiency),
       measures("ms_per_loop", out.ms_per_loop), words("table.task", tasks), lengths("table.k", table_k),
       measures("table.ms_alone", ms_alone), measures("table.ms", ms), measures("table.speedup", speedup)});
  const auto expect_as_many = [&](std::size_t found, std::size_t expected, const char* each) {
    if (found != expected) {
      throw_bad_input(
          fmt::format("{}: found lists of {} and {} numbers, expected one for each {}", where, expected, found, each));
    }
  };
  for (const std::vector<double>* list : {&out.ms_128, &out.efficiency, &out.ms_per_loop}) {
    expect_as_many(list->size(), out.k.size(), "K");
  }
  for (const std::vector<double>* list : {&table_k, &ms_alone, &ms, &speedup}) {
    expect_as_many(list->size(), tasks.size(), "task");
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    out.table.push_back(
        {.task = tasks[i], .k = table_k[i], .ms_alone = ms_alone[i], .ms = ms[i], .speedup = speedup[i]});
  }
  return out;
}

}  // namespace specdec
