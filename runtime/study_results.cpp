#include "runtime/study_results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "backend/error.h"

namespace specdec {

using nlohmann::json;

StudyResults::StudyResults(std::filesystem::path file) : file_(std::move(file)) {
  if (!std::filesystem::exists(file_)) return;
  std::ifstream in(file_, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  if (!in) throw_bad_input(fmt::format("'{}' cannot be read", file_.string()));
  const std::string text = all.str();
  int line = 0;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      torn_ = true;
      break;
    }
    const json row = json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                 text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    const bool sound = row.is_object() && row.contains("key") && row["key"].is_string() && row.contains("repeat") &&
                       row["repeat"].is_number_integer() && row.contains("status") && row["status"].is_string();
    // A line of nothing but what a crash left is skipped like the end of the file; anything else is not ours.
    if (sound) {
      take(row);
    } else if (!row.is_discarded()) {
      throw_bad_input(
          fmt::format("{}:{}: found no result of a study; is it another program's file?", file_.string(), line + 1));
    }
    begin = end + 1;
  }
}

void StudyResults::take(json row) {
  const Job job{row["key"].get<std::string>(), row["repeat"].get<int>()};
  if (row["status"] == "ok") finished_[job] = row;
  latest_[job] = std::move(row);
}

const json* StudyResults::finished(const std::string& key, int repeat) const {
  const auto at = finished_.find({key, repeat});
  return at == finished_.end() ? nullptr : &at->second;
}

const json* StudyResults::latest(const std::string& key, int repeat) const {
  if (const json* const good = finished(key, repeat)) return good;
  const auto at = latest_.find({key, repeat});
  return at == latest_.end() ? nullptr : &at->second;
}

void StudyResults::append(const json& row) {
  const std::string line = (torn_ ? "\n" : "") + row.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  const int file = open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  bool written = file >= 0;
  for (std::size_t done = 0; written && done < line.size();) {
    const ssize_t count = write(file, line.data() + done, line.size() - done);
    if (count < 0 && errno == EINTR) continue;
    written = count > 0;
    if (written) done += static_cast<std::size_t>(count);
  }
  const std::string why = std::strerror(errno);
  written = written && fsync(file) == 0;
  if (file >= 0) close(file);
  if (!written) throw_bad_input(fmt::format("'{}' cannot be written: {}", file_.string(), why));
  torn_ = false;
  take(row);
}

}  // namespace specdec
