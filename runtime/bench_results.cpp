#include "runtime/bench_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/interconnect_choice.h"
#include "runtime/nullable.h"
#include "runtime/version.h"
#include "runtime/whole_file.h"

namespace specdec {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBenchReportVersion = 1;

double micro(double seconds) { return seconds * 1e6; }
double giga(double bytes_a_second) { return bytes_a_second * 1e-9; }

bool has_bandwidth(const BenchRow& row) { return row.what == "all_reduce" || row.what.starts_with(kReplay); }

struct Column {
  const char* name;
  std::function<Json(const BenchRow&)> value;
};

/// The fields of a row, in JSON and CSV alike.
const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"what", [](const BenchRow& r) { return Json(r.what); }},
      {"transport", [](const BenchRow& r) { return Json(r.transport); }},
      {"operation", [](const BenchRow& r) { return Json(r.operation); }},
      {"interconnect", [](const BenchRow& r) { return Json(r.interconnect); }},
      {"ranks", [](const BenchRow& r) { return Json(r.ranks); }},
      {"bytes", [](const BenchRow& r) { return Json(r.bytes); }},
      {"tokens", [](const BenchRow& r) { return r.tokens ? Json(*r.tokens) : Json(); }},
      {"dtype", [](const BenchRow& r) { return Json(r.dtype); }},
      {"iterations", [](const BenchRow& r) { return Json(r.iterations); }},
      {"p50_us", [](const BenchRow& r) { return Json(micro(r.seconds.p50)); }},
      {"p90_us", [](const BenchRow& r) { return Json(micro(r.seconds.p90)); }},
      {"p99_us", [](const BenchRow& r) { return Json(micro(r.seconds.p99)); }},
      {"max_us", [](const BenchRow& r) { return Json(micro(r.seconds.max)); }},
      {"mean_us", [](const BenchRow& r) { return Json(micro(r.seconds.mean)); }},
      {"algbw_GBps",
       [](const BenchRow& r) {
         return has_bandwidth(r) ? Json(giga(algorithm_bandwidth(r.bytes, r.seconds.p50))) : Json();
       }},
      {"busbw_GBps",
       [](const BenchRow& r) {
         return has_bandwidth(r) ? Json(giga(bus_bandwidth(r.bytes, r.seconds.p50, r.ranks))) : Json();
       }},
      {"wrong", [](const BenchRow& r) { return Json(r.wrong); }},
      {"over_mpi", [](const BenchRow& r) { return nullable<Json>(r.over_baseline); }},
      {"modelled_us", [](const BenchRow& r) { return nullable<Json>(r.modelled_seconds, 1e6); }},
      {"late", [](const BenchRow& r) { return r.late ? Json(*r.late) : Json(); }},
      {"gap_us", [](const BenchRow& r) { return nullable<Json>(r.gap_seconds, 1e6); }},
  };
  return all;
}

std::string csv_cell(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  if (!value.is_string()) return value.dump();
  auto text = value.get<std::string>();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + '"';
}

/// "0-2,5" of ranks in ascending order.
std::string runs_of(const std::vector<std::size_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

/// One line for all ranks that are placed alike.
std::string places_text(const std::vector<RankPlace>& places) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> groups;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const RankPlace& place = places[rank];
    const std::string where = fmt::format("on {}: {}, {}; each may run on {} of {} cores ({})", place.host, place.cpu,
                                          place.kernel, place.core_count, place.host_cores, place.cores);
    const auto group = std::ranges::find(groups, where, [](const auto& g) { return g.first; });
    if (group == groups.end()) {
      groups.push_back({where, {rank}});
    } else {
      group->second.push_back(rank);
    }
  }
  std::string text;
  for (const auto& [where, ranks] : groups) {
    text += fmt::format("# rank{} {} {}\n", ranks.size() == 1 ? "" : "s", runs_of(ranks), where);
  }
  return text;
}

std::string commented(std::string_view text) {
  std::string out = "# ";
  for (const char c : text) {
    out += c == '\n' ? std::string("\n# ") : std::string(1, c);
  }
  return out + '\n';
}

}  // namespace

std::string bench_header_text(const BenchHeader& header) {
  std::string text = commented(header.version) + places_text(header.ranks);
  const std::string source = header.interconnect ? fmt::format(" ({})", header.interconnect->source) : "";
  text += commented("interconnect: " + label_of(header.interconnect) + source);
  if (!header.decode.empty()) text += commented("decode: " + header.decode);
  if (header.on_device) {
    text +=
        "# replay/N: one all-reduce among N in a CUDA graph by the GPU's clock, the time of a replay over N, one "
        "sample a "
        "replay\n# (percentiles are those of replays); the host's part is in all other rows.\n";
  }
  return text +
         "# The largest of all ranks' own times after a common barrier, one sample an iteration; transports take "
         "turns; bandwidths of\n"
         "# P50; /MPI: P50 over that of MPI_Allreduce in this run. Every sum is verified: `wrong` counts elements.\n";
}

std::string bench_table_head(bool modelled) {
  return fmt::format("{:>11} {:>10} {:>5} {:<15} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {}\n", "what",
                     "bytes", "dtype", "transport", "runs", "P50 us", "P90 us", "P99 us", "max us", "mean us", "algbw",
                     "busbw", "wrong",
                     modelled ? fmt::format("{:>9} {:>6}", "model us", "late") : fmt::format("{:>6}", "/MPI"));
}

std::string bench_table_row(const BenchRow& row) {
  const auto time = [](double seconds) {
    const double us = micro(seconds);
    return us < 1000 ? fmt::format("{:.2f}", us) : fmt::format("{:.0f}", us);
  };
  const auto bandwidth = [&](double value) { return has_bandwidth(row) ? fmt::format("{:.3f}", giga(value)) : "-"; };
  std::string last = row.over_baseline ? fmt::format("{:>6.3f}", *row.over_baseline) : fmt::format("{:>6}", "-");
  if (row.modelled()) {
    last = fmt::format("{:>9} {:>6}", time(row.modelled_seconds.value_or(0)),
                       row.late ? fmt::format("{}", *row.late) : "-");
  }
  return fmt::format("{:>11} {:>10} {:>5} {:<15} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {}\n", row.what,
                     row.bytes, row.dtype, row.transport, row.iterations, time(row.seconds.p50), time(row.seconds.p90),
                     time(row.seconds.p99), time(row.seconds.max), time(row.seconds.mean),
                     bandwidth(algorithm_bandwidth(row.bytes, row.seconds.p50)),
                     bandwidth(bus_bandwidth(row.bytes, row.seconds.p50, row.ranks)), row.wrong, last);
}

std::string bench_csv(const std::vector<BenchRow>& rows) {
  std::string text;
  for (const Column& column : columns()) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", column.name);
  }
  text += '\n';
  for (const BenchRow& row : rows) {
    std::string line;
    for (const Column& column : columns()) {
      line += csv_cell(column.value(row)) + ',';
    }
    line.back() = '\n';
    text += line;
  }
  return text;
}

BenchResults::BenchResults(BenchHeader header, std::filesystem::path json, std::filesystem::path csv)
    : header_(std::move(header)), json_file_(std::move(json)), csv_file_(std::move(csv)) {
  write(JobStatus::kRunning, "");
}

void BenchResults::add(const std::vector<BenchRow>& rows) {
  const std::scoped_lock lock(mutex_);
  rows_.insert(rows_.end(), rows.begin(), rows.end());
}

std::int64_t BenchResults::wrong() const {
  const std::scoped_lock lock(mutex_);
  std::int64_t sum = 0;
  for (const BenchRow& row : rows_) sum += row.wrong;
  return sum;
}

void BenchResults::write(JobStatus status, const std::string& error) {
  const std::scoped_lock lock(mutex_);
  if (status_ == JobStatus::kRunning) {
    status_ = status;
    error_ = error;
  }
  if (!json_file_.empty()) write_whole_file(json_file_, json(), "--json");
  if (!csv_file_.empty()) write_whole_file(csv_file_, bench_csv(rows_), "--csv");
}

std::string BenchResults::json() const {
  Json out = {{"version", kBenchReportVersion},
              {"program", header_.version},
              {"commit", build_commit()},
              {"status", name_of(status_)},
              {"error", error_.empty() ? Json() : Json(error_)}};
  out["interconnect"] = {{"kind", header_.interconnect ? "modelled" : "native"}};
  if (header_.interconnect) {
    out["interconnect"]["name"] = header_.interconnect->name;
    out["interconnect"]["source"] = header_.interconnect->source;
  }
  out["decode"] = header_.decode.empty() ? Json() : Json(header_.decode);
  out["ranks"] = Json::array();
  for (const RankPlace& place : header_.ranks) {
    out["ranks"].push_back({{"rank", out["ranks"].size()},
                            {"host", place.host},
                            {"cpu", place.cpu},
                            {"kernel", place.kernel},
                            {"cores", place.cores},
                            {"core_count", place.core_count},
                            {"host_cores", place.host_cores}});
  }
  out["rows"] = Json::array();
  for (const BenchRow& row : rows_) {
    Json fields;
    for (const Column& column : columns()) fields[column.name] = column.value(row);
    out["rows"].push_back(std::move(fields));
  }
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace specdec
