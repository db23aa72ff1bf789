#include "runtime/weights_cache.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "backend/error.h"

namespace specdec {
namespace {

/// As the XDG Base Directory Specification says: a relative path there counts as none. Empty where neither variable says.
std::filesystem::path users_folder() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value != nullptr && *value == '/' ? value : "";
  };
  if (const std::filesystem::path caches = variable("XDG_CACHE_HOME"); !caches.empty()) return caches / "specdec_dist";
  const std::filesystem::path home = variable("HOME");
  return home.empty() ? home : home / ".cache" / "specdec_dist";
}

/// One rank's part of the record, as it travels.
struct Part {
  std::int64_t from_cache = 0;
  std::int64_t packed = 0;
  std::array<char, 1024> problem = {};  ///< ends in a zero
};

}  // namespace

WeightsCache::WeightsCache(const RunConfig& config, std::function<void()> progress) {
  if (!config.caches_weights()) return;
  const bool named = config.weights_cache != kAutoWeightsCache;
  const std::filesystem::path folder = named ? std::filesystem::path(config.weights_cache) : users_folder();
  if (folder.empty()) problem_ = "weights_cache: auto: found neither XDG_CACHE_HOME nor HOME, expected one";
  cache_ = std::make_unique<PackedCache>(folder, std::move(progress));
  if (named && !cache_->problem().empty()) throw_bad_input("weights_cache: " + cache_->problem());
}

WeightsCacheRecord WeightsCache::gather(Communicator& group) const {
  if (!cache_) return {};  // nor has any other rank one
  Part mine{.from_cache = cache_->loaded(), .packed = cache_->missed()};
  std::string problem = problem_;
  if (problem.empty() && !cache_->problem().empty()) problem = "weights_cache: " + cache_->problem();
  problem.copy(mine.problem.data(), mine.problem.size() - 1);
  std::vector<Part> all(group.rank() == 0 ? static_cast<std::size_t>(group.size()) : 0);
  group.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), 0, Stream{});
  WeightsCacheRecord record;
  for (const Part& part : all) {
    record.from_cache += part.from_cache;
    record.packed += part.packed;
    if (record.problem.empty()) record.problem = part.problem.data();
  }
  return record;
}

}  // namespace specdec
