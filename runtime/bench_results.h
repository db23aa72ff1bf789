#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "parallel/interconnect.h"
#include "parallel/latency.h"
#include "parallel/rank_place.h"
#include "runtime/record.h"

/// What allreduce_bench found, as table, JSON and CSV.
namespace specdec {

/// The baseline's name in the column `transport`.
inline constexpr const char* kBaselineTransport = "MPI_Allreduce";

/// Before a number N in the column `what`: one all-reduce among N in a CUDA graph by the device's clock, a replay over N; percentiles are those of replays.
inline constexpr const char* kReplay = "replay/";

struct BenchRow {
  std::string what =
      "all_reduce";  ///< with --decode: "token", "all_reduces" (of one token), "all_reduce", "broadcast"; on a device also kReplay
  std::string transport;     ///< Communicator::transport(), or kBaselineTransport
  std::string operation;     ///< how it adds, or nothing
  std::string interconnect;  ///< "native", or "modelled NAME"
  int ranks = 1;
  std::size_t bytes = 0;               ///< of one rank's payload
  std::optional<std::int64_t> tokens;  ///< rows of d_model elements in it
  std::string dtype;                   ///< "fp32" or "bf16"
  int iterations = 0;
  LatencySummary seconds;
  std::int64_t wrong = 0;
  std::optional<double> over_baseline;     ///< P50 over the baseline's of the same payload; both measured
  std::optional<double> modelled_seconds;  ///< what the modelled interconnect says, without jitter
  std::optional<std::int64_t> late;        ///< iterations that really took longer than modelled
  std::optional<double> gap_seconds;       ///< compute between two all-reduces, as measured

  bool modelled() const { return modelled_seconds.has_value(); }
};

/// What a run was made on and how.
struct BenchHeader {
  std::string version;  ///< version_text
  std::vector<RankPlace> ranks;
  std::optional<Interconnect> interconnect;  ///< a modelled one
  std::string decode;                        ///< the shape in words, or nothing
  bool on_device = false;                    ///< whether a transport is
};

/// "# ..." lines above the table.
std::string bench_header_text(const BenchHeader& header);
/// The line of column names; rows of a modelled interconnect have a table of their own.
std::string bench_table_head(bool modelled);
std::string bench_table_row(const BenchRow& row);

std::string bench_csv(const std::vector<BenchRow>& rows);

/// The rows so far, and the files that they go to. Safe to use from the watchdog's thread.
class BenchResults {
 public:
  /// Empty paths: no such file. Writes both at once, so that one that cannot be written shows before the work.
  BenchResults(BenchHeader header, std::filesystem::path json, std::filesystem::path csv);

  void add(const std::vector<BenchRow>& rows);
  /// Of all rows.
  std::int64_t wrong() const;
  /// `error`: one line, unless `status` is kOk. The first status that is not kRunning counts: the measuring thread may go on for a moment
  /// after the watchdog has ended the job, and fail because of that.
  void write(JobStatus status, const std::string& error);

 private:
  std::string json() const;

  const BenchHeader header_;
  const std::filesystem::path json_file_;
  const std::filesystem::path csv_file_;
  mutable std::mutex mutex_;
  std::vector<BenchRow> rows_;  // guarded by mutex_, as are all below
  JobStatus status_ = JobStatus::kRunning;
  std::string error_;
};

}  // namespace specdec
