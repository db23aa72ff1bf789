#include "runtime/published.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>

#include "backend/error.h"
#include "runtime/cli.h"
#include "runtime/config_prompts.h"
#include "runtime/file_keys.h"
#include "runtime/hardware_load.h"
#include "runtime/paths.h"
#include "runtime/predicted_job.h"
#include "runtime/theory.h"
#include "runtime/units.h"

namespace specdec {
namespace {

constexpr int kMostFitted = 256;
constexpr int kMostContext = 1 << 20;
constexpr double kTokens = 128;

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

/// Each may be null.
FileKey rates(const std::string& name, std::vector<std::optional<double>>& into) {
  constexpr const char* kAccepts = "a list of numbers between 0 and 1, null where none is known";
  return file_key::list<std::optional<double>>(
      name, kAccepts, into, [name](const YAML::Node& node, const YamlPlace& place) -> std::optional<double> {
        if (node.IsNull()) return std::nullopt;
        return read_number(place, node, name, kAccepts, [](double v) { return v > 0 && v < 1; });
      });
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
  std::vector<std::optional<double>> alpha;
  int fit_k = 0;
  int context = 0;
  read_file_keys(
      read_named_file(file, place), where,
      {file_key::required(file_key::text("title", "a title", out.title)),
       file_key::required(file_key::text("source", "where the figures are from", out.source)), lengths("k", out.k),
       measures("ms_128", out.ms_128), measures("tokens_per_loop_over_k1", out.efficiency),
       measures("ms_per_loop", out.ms_per_loop), words("table.task", tasks), lengths("table.k", table_k),
       measures("table.ms_alone", ms_alone), measures("table.ms", ms), measures("table.speedup", speedup),
       rates("table.alpha", alpha),
       file_key::required(file_key::text("predicted.hardware", "a description of hardware", out.job.hardware)),
       file_key::required(file_key::text("predicted.config", "a config", out.job.config)),
       file_key::required(file_key::integer("predicted.fit_k", 1, kMostFitted, fit_k)),
       file_key::integer("predicted.context", 0, kMostContext, context)});
  out.job.fit_k = fit_k;
  out.job.context = context;
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
  if (alpha.empty()) alpha.resize(tasks.size());
  expect_as_many(alpha.size(), tasks.size(), "task");
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    out.table.push_back({.task = tasks[i],
                         .k = table_k[i],
                         .ms_alone = ms_alone[i],
                         .ms = ms[i],
                         .speedup = speedup[i],
                         .alpha = alpha[i]});
  }
  if (!out.job.config.empty() && std::ranges::find(out.k, static_cast<double>(fit_k)) == out.k.end()) {
    throw_bad_input(fmt::format("{}: predicted.fit_k: found {}, expected one of k", where, fit_k));
  }
  return out;
}

PublishedPrediction predict_published(const Published& of, const std::string& place) {
  const Hardware hardware = load_hardware(of.job.hardware, place);
  CommandLine command;
  command.config = of.job.config;
  const RunConfig config = make_run_config(command);
  if (config.draft.empty())
    throw_bad_input(fmt::format("{}: {}: draft: found nothing, expected the model that drafts", place, of.job.config));
  PredictedJob job = predicted_job(config, hardware.ranks);
  job.context = of.job.context;
  const auto at = static_cast<std::size_t>(std::ranges::find(of.k, static_cast<double>(of.job.fit_k)) - of.k.begin());
  PublishedPrediction out;
  const auto most = static_cast<double>(of.job.fit_k + 1);
  const double tokens = of.efficiency[at] * most;
  if (tokens < 1 || tokens > most) {
    throw_bad_input(fmt::format(
        "{}: {}: tokens_per_loop_over_k1: found {} at K = {}, expected what 1 to {} tokens a loop are of that", place,
        of.name, of.efficiency[at], of.job.fit_k, of.job.fit_k + 1));
  }
  out.alpha = alpha_from_tokens_per_loop(tokens, of.job.fit_k);
  for (const double value : of.k) {
    const std::int64_t ks[] = {std::llround(value)};
    const Prediction found = predict(hardware, job, out.alpha, ks).front();
    out.ms_128.push_back(kTokens * kMsPerSecond * found.token.mean);
    out.efficiency.push_back(found.tokens_per_loop / (value + 1));
    out.ms_per_loop.push_back(kMsPerSecond * found.loop.total());
  }
  for (const Published::Line& line : of.table) {
    out.table.emplace_back();
    if (!line.alpha) continue;
    const std::int64_t ks[] = {0, std::llround(line.k)};
    const std::vector<Prediction> found = predict(hardware, job, *line.alpha, ks);
    out.table.back() = {.ms_alone = kMsPerSecond * found[0].token.mean,
                        .ms = kMsPerSecond * found[1].token.mean,
                        .speedup = found[1].speedup};
  }
  return out;
}

}  // namespace specdec
