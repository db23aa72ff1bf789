#pragma once

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace specdec::tests {

/// The problems of HumanEval, each with its `prompt` and `canonical_solution`.
inline std::vector<nlohmann::json> human_eval() {
  const std::filesystem::path file = std::filesystem::path(SPECDEC_SOURCE_DIR) / "assets" / "HumanEval.jsonl.gz";
  const std::string command = "gzip -dc '" + file.string() + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> block{};
  for (std::size_t n = 0; (n = std::fread(block.data(), 1, block.size(), pipe.get())) > 0;) {
    text.append(block.data(), n);
  }
  std::vector<nlohmann::json> problems;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    problems.push_back(nlohmann::json::parse(line));
  }
  return problems;
}

}  // namespace specdec::tests
