#include "runtime/paths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "backend/error.h"
#include "models/utf8.h"
#include "runtime/suggestion.h"

namespace specdec {
namespace fs = std::filesystem;
namespace {

/// The first of `places` that `is` holds for; else throws "FOUND; looked at PLACES HINT".
template <typename Is>
fs::path first_of(const std::vector<fs::path>& places, Is is, const std::string& found, const std::string& hint) {
  std::error_code error;
  for (const fs::path& place : places) {
    if (is(place, error)) return place;
  }
  std::vector<std::string> names;
  names.reserve(places.size());
  for (const fs::path& place : places) names.push_back("'" + place.string() + "'");
  throw_bad_input(fmt::format("{}; looked at {}{}", found, fmt::join(names, ", "), hint));
}

bool is_file(const fs::path& path, std::error_code& error) { return fs::is_regular_file(path, error); }

std::vector<std::string> configs_in(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::path& folder : folders) {
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      if (at->path().extension() == ".yaml") names.push_back(at->path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The file of a preset in configs/`kind`, or of a path.
fs::path find_described(const char* kind, const std::string& name, const fs::path& config_dir,
                        const std::string& place) {
  const bool has_folder = name.find('/') != std::string::npos;
  const bool is_path = has_folder || name.ends_with(".yaml");
  std::vector<fs::path> folders;
  if (is_path && !config_dir.empty() && fs::path(name).is_relative()) folders.push_back(config_dir);
  folders.emplace_back();
  if (!has_folder) {
    const fs::path ours = fs::path("configs") / kind;
    folders.insert(folders.end(), {ours, share_directory() / ours});
  }
  std::vector<std::string> names = configs_in(folders);
  if (!is_path) {
    for (std::string& candidate : names) candidate = fs::path(candidate).stem().string();
  }
  for (fs::path& folder : folders) folder /= is_path ? name : name + ".yaml";
  return first_of(folders, is_file, fmt::format("{}: found no file '{}'", place, name), suggestion(name, names));
}

}  // namespace

fs::path share_directory() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / "../share/specdec").lexically_normal();
}

fs::path find_config(const std::string& name) {
  const std::string found = fmt::format("--config: found no file '{}'", name);
  if (name.starts_with('/') || name.starts_with('.')) return first_of({name}, is_file, found, "");
  const fs::path shared = share_directory() / "configs";
  const bool bare = name.find('/') == std::string::npos;
  const auto hint = bare ? suggestion(name, configs_in({".", "configs", shared})) : "";
  return first_of({name, fs::path("configs") / name, shared / name}, is_file, found, hint);
}

fs::path find_interconnect(const std::string& name, const fs::path& config_dir, const std::string& place) {
  return find_described("interconnects", name, config_dir, place);
}

fs::path find_hardware(const std::string& name, const std::string& place) {
  return find_described("hardware", name, {}, place);
}

fs::path find_published(const std::string& name, const std::string& place) {
  return find_described("published", name, {}, place);
}

fs::path find_model(const fs::path& path, const fs::path& config_dir, const std::string& place) {
  if (path.empty()) throw_bad_input(fmt::format("{}: found nothing, expected the directory of a model", place));
  const std::string found = fmt::format("{}: found no directory '{}', expected that of a model", place, path.string());
  const auto is_directory = [](const fs::path& at, std::error_code& error) { return fs::is_directory(at, error); };
  std::vector<fs::path> places;
  if (path.is_absolute()) {
    places = {path};
  } else {
    if (!config_dir.empty()) places.push_back(config_dir / path);
    places.push_back(path);
    places.push_back(share_directory() / path);
    places.push_back(share_directory() / "assets" / path);
  }
  fs::path directory = fs::absolute(first_of(places, is_directory, found, "")).lexically_normal();
  if (first_invalid_utf8(directory.string())) {
    throw_bad_input(fmt::format("{}: found a path that is not UTF-8, expected UTF-8", place));
  }
  return directory;
}

}  // namespace specdec
