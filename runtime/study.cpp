#include "runtime/study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <ranges>

#include "backend/error.h"
#include "runtime/cli.h"
#include "runtime/config_load.h"
#include "runtime/config_prompts.h"
#include "runtime/file_keys.h"
#include "runtime/fingerprint.h"
#include "runtime/hardware_load.h"
#include "runtime/interconnect_load.h"
#include "runtime/pass_times.h"
#include "runtime/paths.h"
#include "runtime/philox.h"
#include "runtime/published.h"
#include "runtime/version.h"

namespace specdec {
namespace {

using file_key::required;
using file_key::text;

constexpr const char* kListOfRanks = "a list of integers from 1 to 16";
constexpr const char* kListOfK = "a list of integers from 0 to 256";
constexpr int kMostRanksOfAJob = 16;
constexpr std::int64_t kMostDrafted = 256;
constexpr const char* kNames = "names that map to keys of a config";
constexpr std::string_view kRanksWord = "{ranks}";
constexpr std::string_view kOnly = "default";

std::string flow(const YAML::Node& node) {
  YAML::Emitter out;
  out.SetSeqFormat(YAML::Flow);
  out.SetMapFormat(YAML::Flow);
  out << node;
  return out.c_str();
}

std::string with_ranks(std::string text, int ranks) {
  for (std::size_t at = text.find(kRanksWord); at != std::string::npos; at = text.find(kRanksWord)) {
    text.replace(at, kRanksWord.size(), std::to_string(ranks));
  }
  return text;
}

/// A map of config keys as --set takes them; sections may nest.
void add_keys(const YAML::Node& map, const std::string& section, const std::string& key, const YamlPlace& place,
              std::vector<std::string>& set) {
  if (!map.IsMap()) reject(place, map, key, describe(map), "a map of keys of a config");
  for (const auto& item : map) {
    const std::string name = section + item.first.Scalar();
    if (item.second.IsMap()) {
      add_keys(item.second, name + ".", key, place, set);
    } else {
      const YAML::Node& value = item.second;
      set.push_back(name + "=" + (value.IsNull() ? "" : value.IsScalar() ? value.Scalar() : flow(value)));
    }
  }
}

/// A list that has no value twice.
template <typename Item>
FileKey set_of(const std::string& name, const std::string& accepts, std::vector<Item>& into,
               const std::function<Item(const YAML::Node&, const YamlPlace&)>& read) {
  return file_key::list<Item>(name, accepts, into, [=, &into](const YAML::Node& node, const YamlPlace& place) {
    Item value = read(node, place);
    if (std::ranges::find(into, value) != into.end()) {
      reject(place, node, name, describe(node) + " twice", "each value once");
    }
    return value;
  });
}

FileKey variants(const std::string& name, std::vector<StudyVariant>& into) {
  return {name, kNames, [=, &into](const YAML::Node& node, const YamlPlace& place) {
            if (!node.IsMap() || node.size() == 0) reject(place, node, name, describe(node), kNames);
            for (const auto& item : node) {
              StudyVariant variant{.name = item.first.Scalar(), .set = {}};
              if (std::ranges::find(into, variant.name, &StudyVariant::name) != into.end()) {
                reject(place, item.first, name, describe(item.first) + " twice", "each name once");
              }
              if (!item.second.IsNull()) add_keys(item.second, "", name + "." + variant.name, place, variant.set);
              into.push_back(std::move(variant));
            }
          }};
}

std::vector<FileKey> keys_of(Study& study) {
  const std::vector<std::string> placements = names_of(kPlacements);
  const auto word = [](const std::string& name) {
    return [name](const YAML::Node& node, const YamlPlace& place) {
      if (!node.IsScalar() || node.Scalar().empty()) reject(place, node, name, describe(node), "a list of names");
      return node.Scalar();
    };
  };
  return {
      required(text("config", "the name of a config, or its file", study.config)),
      text("title", "a title", study.title),
      {"set", "a map of keys of a config",
       [&study](const YAML::Node& node, const YamlPlace& place) { add_keys(node, "", "set", place, study.set); }},
      set_of<int>("ranks", kListOfRanks, study.ranks,
                  [](const YAML::Node& node, const YamlPlace& place) {
                    return read_integer(place, node, "ranks", 1, kMostRanksOfAJob);
                  }),
      set_of<std::int64_t>("k", kListOfK, study.ks,
                           [](const YAML::Node& node, const YamlPlace& place) {
                             return read_integer(place, node, "k", std::int64_t{0}, kMostDrafted);
                           }),
      set_of<std::string>("interconnect", "a list of names", study.interconnects, word("interconnect")),
      set_of<Placement>("placement", "a list of " + word_list(placements), study.placements,
                        [placements](const YAML::Node& node, const YamlPlace& place) {
                          return kPlacements[read_word(place, node, "placement", placements)];
                        }),
      variants("models", study.models),
      variants("methods", study.methods),
      file_key::boolean("all_reduce", study.all_reduce),
      text("all_reduce_bytes", "payloads as allreduce_bench takes them, such as 1K..256K", study.all_reduce_bytes),
      file_key::integer("repeats", 1, kMostRepeats, study.repeats),
      {"seed", "an integer",
       [&study](const YAML::Node& node, const YamlPlace& place) {
         study.seed = read_integer(place, node, "seed", std::uint64_t{0}, ~std::uint64_t{0});
       }},
      file_key::number("timeout", 1, 86400, 1, study.timeout),
      text("launcher", "words that start {ranks} ranks", study.launcher),
      text("hardware", "the name of a description of hardware, or its file", study.hardware),
      text("published", "the name of published figures (docs/study.md)", study.published),
  };
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  for (const auto part : line | std::views::split(' ')) {
    if (!part.empty()) words.emplace_back(part.begin(), part.end());
  }
  return words;
}

bool sets(const std::vector<std::string>& set, std::string_view key) {
  return std::ranges::any_of(set,
                             [&](const std::string& item) { return item.starts_with(key) && item[key.size()] == '='; });
}

std::string key_of(const StudyPoint& point, const std::string& what, const std::string& launcher) {
  RunningHash hash;
  for (const std::string& part :
       {what, launcher, build_commit(), std::to_string(point.ranks), std::to_string(static_cast<int>(point.kind))}) {
    hash.add(std::as_bytes(std::span(part)));
  }
  return fmt::format("{:016x}", hash.value());
}

/// What the study itself sets at every point may not be among the keys that it is given.
void refuse_own_keys(const std::string& place, const std::string& where, const std::vector<std::string>& set,
                     bool has_k) {
  struct Own {
    std::string_view key;
    std::string_view instead;
  };
  constexpr Own kOwn[] = {{"interconnect", "it as 'interconnect' of the study"},
                          {"placement", "it as 'placement' of the study"},
                          {"decode.method", "none: K = 0 decodes without the draft, all others speculate"},
                          {"compare", "none: K = 0 is what others are compared with"},
                          {"decode.k", "it as 'k' of the study, or of a method"}};
  for (const Own& own : kOwn) {
    if (sets(set, own.key) && !(has_k && own.key == "decode.k")) {
      throw_bad_input(fmt::format("{}: {}: found '{}', expected {}", place, where, own.key, own.instead));
    }
  }
}

StudyPoint decode_point(const Study& study, int ranks, std::int64_t k, const std::string& interconnect,
                        Placement placement, const StudyVariant& models, const StudyVariant& method) {
  StudyPoint point{.kind = PointKind::kDecode,
                   .ranks = ranks,
                   .k = k,
                   .interconnect = interconnect,
                   .placement = placement,
                   .models = models.name,
                   .method = method.name,
                   .set = study.set,
                   .config = {},
                   .key = {}};
  for (const StudyVariant* variant : {&models, &method}) {
    point.set.insert(point.set.end(), variant->set.begin(), variant->set.end());
  }
  for (std::string& assignment : point.set) assignment = with_ranks(std::move(assignment), ranks);
  const auto add = [&](const std::string& assignment) { point.set.push_back(assignment); };
  add("interconnect=" + interconnect);
  add(fmt::format("placement={}", name_of(placement)));
  add("compare=false");
  add(fmt::format("decode.k={}", k));
  add(std::string("decode.method=") + (k == 0 ? "autoregressive" : "speculative"));
  CommandLine command;
  command.config = study.config;
  command.set = point.set;
  point.config = make_run_config(command);
  if (k > 0 && point.config.draft.empty()) {
    throw_bad_input(fmt::format("{}: k: found {} without a draft, expected 0", study.name, k));
  }
  point.key = key_of(point, serialise(point.config), study.launcher);
  return point;
}

/// K of a variant that says so itself.
std::vector<std::int64_t> ks_of(const Study& study, const StudyVariant& models, const StudyVariant& method) {
  for (const StudyVariant* variant : {&method, &models}) {
    if (!sets(variant->set, "decode.k")) continue;
    LoadedConfig loaded;
    for (const std::string& assignment : variant->set) set_key(loaded, assignment);
    return {loaded.run.decode.k};
  }
  return study.ks;
}

/// With GPUs the ranks of its jobs meet on them, and `--transport auto` of allreduce_bench on the host.
bool times_link(const StudyPoint& calibrates) { return calibrates.ranks > 1 && calibrates.config.backend != "cuda"; }

/// Marks the points that a calibration is made from, and adds that of the passes and those of the links.
void add_calibration(const Study& study, std::vector<StudyPoint>& points) {
  std::vector<StudyPoint> links;
  for (const int ranks : study.ranks) {
    for (const std::int64_t k : {std::int64_t{0}, Study::kCalibrationK}) {
      const auto at = std::ranges::find_if(points, [&](const StudyPoint& point) {
        return point.kind == PointKind::kDecode && point.ranks == ranks && point.k == k &&
               point.interconnect == kNativeInterconnect && point.placement == Placement::kRank0 &&
               point.models == study.models.front().name && point.method == study.methods.front().name;
      });
      if (at == points.end()) {
        throw_bad_input(
            fmt::format("{}: hardware: found calibrated without the point 'ranks {}, K {}, native' of the first models "
                        "and method with placement rank0, expected it among the study's",
                        study.name, ranks, k));
      }
      at->calibrates = true;
      if (k > 0 || !times_link(*at)) continue;
      StudyPoint& link = links.emplace_back(*at);
      link.kind = PointKind::kLink;
      link.calibrates = false;
      link.key = key_of(
          link,
          fmt::format("link of {} {}", load_model_config(link.config.target).d_model, link.config.parallel.transport),
          study.launcher);
    }
  }
  StudyPoint passes = *std::ranges::find_if(points, &StudyPoint::calibrates);
  passes.kind = PointKind::kPasses;
  passes.ranks = 1;
  passes.calibrates = false;
  passes.key =
      key_of(passes, fmt::format("passes and loops {} {}", fmt::join(study.ranks, ","), serialise(passes.config)),
             study.launcher);
  std::ranges::move(links, std::back_inserter(points));
  points.push_back(std::move(passes));
}

}  // namespace

Study parse_study(const std::string& yaml, const std::string& place, const std::string& name) {
  Study study;
  study.name = name;
  study.text = yaml;
  read_file_keys(yaml, place, keys_of(study));
  if (study.title.empty()) study.title = name;
  if (study.interconnects.empty()) study.interconnects = {kNativeInterconnect};
  for (std::vector<StudyVariant>* list : {&study.models, &study.methods}) {
    if (list->empty()) list->push_back({.name = std::string(kOnly), .set = {}});
  }
  refuse_own_keys(place, "set", study.set, false);
  for (const StudyVariant& variant : study.models) refuse_own_keys(place, "models." + variant.name, variant.set, true);
  for (const StudyVariant& variant : study.methods)
    refuse_own_keys(place, "methods." + variant.name, variant.set, true);
  if (study.launcher.find(kRanksWord) == std::string::npos) {
    throw_bad_input(
        fmt::format("{}: launcher: found '{}', expected words with {} in them", place, study.launcher, kRanksWord));
  }
  return study;
}

Study load_study(const std::string& name) {
  const std::filesystem::path file = find_config(name);
  return parse_study(read_named_file(file, "--config"), file.string(), file.stem().string());
}

std::optional<Hardware> Study::hardware_of(int count) const {
  if (hardware.empty()) return std::nullopt;
  const std::string place = name + ": hardware";
  const std::string file = with_ranks(hardware, count);
  if (file != hardware) {
    try {
      find_hardware(file, place);
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  return load_hardware(file, place);
}

std::string StudyPoint::label() const {
  if (kind == PointKind::kPasses) return "passes alone";
  if (kind == PointKind::kLink) return fmt::format("link alone, ranks {}", ranks);
  if (kind == PointKind::kAllReduce) return fmt::format("all-reduces, ranks {}, {}", ranks, interconnect);
  std::string text = fmt::format("ranks {}, K {}, {}", ranks, k, interconnect);
  if (placement != Placement::kRank0 && k > 0) text += fmt::format(", {}", name_of(placement));
  for (const std::string& variant : {models, method}) {
    if (variant != kOnly) text += ", " + variant;
  }
  return text;
}

std::vector<StudyPoint> points_of(const Study& study) {
  if (!study.published.empty()) {
    const std::string place = study.name + ": published";
    const Published published = load_published(study.published, place);
    if (!published.job.config.empty()) predict_published(published, place);
  }
  std::vector<StudyPoint> points;
  for (const int ranks : study.ranks) {
    for (const std::string& interconnect : study.interconnects) {
      for (const StudyVariant& models : study.models) {
        for (const StudyVariant& method : study.methods) {
          for (const std::int64_t k : ks_of(study, models, method)) {
            for (const Placement placement : study.placements) {
              // Decoding alone has no draft to place: all ranks are the target's.
              if (k == 0 && placement != study.placements.front()) continue;
              if (k > 0 && target_ranks(placement, ranks) == 0) continue;
              points.push_back(
                  decode_point(study, ranks, k, interconnect, k == 0 ? Placement::kRank0 : placement, models, method));
            }
          }
        }
      }
      if (study.all_reduce && ranks > 1) {
        load_choice(interconnect, study.name + ": interconnect", {});
        StudyPoint point{.kind = PointKind::kAllReduce,
                         .ranks = ranks,
                         .interconnect = interconnect,
                         .models = {},
                         .method = {},
                         .set = {},
                         .config = {},
                         .key = {}};
        point.key = key_of(point, interconnect + " " + study.all_reduce_bytes, study.launcher);
        points.push_back(std::move(point));
      }
    }
  }
  if (study.calibrates()) {
    add_calibration(study, points);
  } else if (!study.hardware.empty() &&
             std::ranges::none_of(study.ranks, [&](int ranks) { return study.hardware_of(ranks).has_value(); })) {
    find_hardware(with_ranks(study.hardware, study.ranks.front()), study.name + ": hardware");
  }
  return points;
}

std::vector<std::string> command_of(const Study& study, const StudyPoint& point, int repeat,
                                    const std::filesystem::path& programs, const std::filesystem::path& json) {
  std::vector<std::string> words = words_of(study.launcher);
  for (std::string& word : words) word = with_ranks(std::move(word), point.ranks);
  const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
  if (point.kind == PointKind::kPasses) {
    add({programs / "specdec_study", "--time-passes", fmt::format("{}", fmt::join(study.ranks, ",")), "--config",
         study.config});
    for (const std::string& assignment : point.set) add({"--set", assignment});
    add({"--json", json});
    return words;
  }
  if (point.kind == PointKind::kLink) {
    const std::int64_t row = load_model_config(point.config.target).d_model;
    add({programs / "allreduce_bench", "--transport", point.config.parallel.transport, "--d-model",
         fmt::format("{}", row), "--tokens", fmt::format("1,4,{}", kTimedRows), "--dtype", "fp32", "--seconds", "0.1",
         "--json", json});
    return words;
  }
  if (point.kind == PointKind::kAllReduce) {
    add({programs / "allreduce_bench", "--transport", "auto", "--bytes", study.all_reduce_bytes, "--seconds", "0.1",
         "--interconnect", point.interconnect, "--json", json});
    return words;
  }
  add({programs / "specdec_dist", "--config", study.config});
  for (const std::string& assignment : point.set) add({"--set", assignment});
  add({"--set", fmt::format("decode.seed={}", point.config.decode.seed + static_cast<std::uint64_t>(repeat))});
  add({"--no-stream", "--quiet", "--json", json});
  return words;
}

std::vector<StudyJob> order_of(const Study& study, const std::vector<StudyPoint>& points) {
  std::vector<StudyJob> jobs;
  RandomKey key{.seed = study.seed, .purpose = Purpose::kOrder};
  for (int repetition = 0; repetition < study.repeats; ++repetition) {
    const std::size_t begin = jobs.size();
    for (std::size_t i = 0; i < points.size(); ++i) {
      const int each = jobs_a_repetition(points[i]);
      const int end = std::min((repetition + 1) * each, repeats_of(study, points[i]));
      for (int job = repetition * each; job < end; ++job) jobs.push_back({.point = i, .repeat = job});
    }
    // Fisher and Yates.
    for (std::size_t i = jobs.size() - 1; i > begin; --i) {
      const auto pick = begin + static_cast<std::size_t>(uniform(key) * static_cast<double>(i - begin + 1));
      ++key.position;
      std::swap(jobs[i], jobs[pick]);
    }
  }
  return jobs;
}

}  // namespace specdec
