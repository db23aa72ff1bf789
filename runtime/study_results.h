#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace specdec {

/// The finished jobs of a study, one line of JSON each in `results.jsonl`. A line is on the disk before the next job begins, and one that a crash tore is left out.
class StudyResults {
 public:
  /// Reads what is there. Throws kBadInput for a file that cannot be read or holds anything else.
  explicit StudyResults(std::filesystem::path file);

  /// The latest line of a job that ended well, or null.
  const nlohmann::json* finished(const std::string& key, int repeat) const;
  /// The latest line of a job however it ended, or null.
  const nlohmann::json* latest(const std::string& key, int repeat) const;
  /// `row` has at least "key", "repeat" and "status".
  void append(const nlohmann::json& row);

 private:
  using Job = std::pair<std::string, int>;
  void take(nlohmann::json row);

  std::filesystem::path file_;
  bool torn_ = false;
  std::map<Job, nlohmann::json> latest_;
  std::map<Job, nlohmann::json> finished_;
};

}  // namespace specdec
