#include "runtime/journal_file.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace specdec {

JournalFile::JournalFile(const RunJournal& journal, std::filesystem::path path)
    : journal_(journal), path_(std::move(path)) {}

void JournalFile::start() {
  write();
  thread_ = std::jthread([this](const std::stop_token& stop) { keep_up(stop); });
}

void JournalFile::write() {
  const std::scoped_lock lock(mutex_);
  written_ = journal_.revision();
  journal_.write_json(path_);
}

void JournalFile::keep_up(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  std::chrono::steady_clock::duration pause = kInterval;
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, pause, [] { return false; });
    const std::uint64_t revision = journal_.revision();
    if (stop.stop_requested() || revision == written_) {
      continue;
    }
    try {
      const auto began = std::chrono::steady_clock::now();
      journal_.write_json(path_);
      written_ = revision;
      pause = std::max<std::chrono::steady_clock::duration>(
          kInterval, kPauseOverWrite * (std::chrono::steady_clock::now() - began));
    } catch (const std::exception&) {
      return;  // a disk that has filled up meanwhile shows in the last write, which throws in main
    }
  }
}

}  // namespace specdec
