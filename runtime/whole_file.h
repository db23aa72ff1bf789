#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace specdec {

/// A file that a reader finds whole or as it was before: what is written goes to `path`.tmp, which finish() renames. What a killed run
/// leaves there the next one writes over. Throws kBadInput "FLAG: 'PATH' ..."; also for a directory, device or pipe, whose name the new
/// file would take.
class WholeFile {
 public:
  WholeFile(std::filesystem::path path, std::string flag);
  /// Unless finished, the path keeps what it had.
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  /// That the disk is full may show in finish() only.
  void write(std::string_view text);
  void finish();

 private:
  [[noreturn]] void fail(const std::string& why) const;

  const std::filesystem::path path_;
  const std::string flag_;
  std::filesystem::path target_;  ///< path_, links followed
  std::filesystem::path temporary_;
  std::ofstream stream_;
  bool finished_ = false;
};

/// All of it at once.
void write_whole_file(const std::filesystem::path& path, std::string_view text, std::string_view flag);

}  // namespace specdec
