#include "runtime/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace specdec {
namespace {

constexpr double kMicrosecond = 1000.0;  // nanoseconds

nlohmann::ordered_json clock_json(const ClockOffset& reading) {
  return {{"offset_ns", reading.offset}, {"uncertainty_ns", reading.uncertainty}};
}

std::string dump(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string trace_head(const std::string& program, int size, const std::string& status,
                       std::span<const TracedRank> ranks) {
  nlohmann::ordered_json described = nlohmann::ordered_json::array();
  std::string names;
  for (const TracedRank& rank : ranks) {
    const std::string host = rank.host.data();
    described.push_back(
        {{"rank", rank.rank},
         {"host", host},
         {"events", rank.events},
         {"dropped", rank.dropped},
         {"clock", {{"start", clock_json(rank.clock_at_start)}, {"end", clock_json(rank.clock_at_end)}}}});
    const auto name = [&](const char* what, TraceLane lane, const nlohmann::ordered_json& args) {
      names += (names.empty() ? "" : ",\n") +
               dump({{"ph", "M"}, {"name", what}, {"pid", rank.rank}, {"tid", static_cast<int>(lane)}, {"args", args}});
    };
    name("process_name", TraceLane::kCompute, {{"name", fmt::format("rank {} on {}", rank.rank, host)}});
    name("process_sort_index", TraceLane::kCompute, {{"sort_index", rank.rank}});
    name("thread_name", TraceLane::kCompute, {{"name", "compute"}});
    name("thread_name", TraceLane::kCommunication, {{"name", "communication"}});
  }
  const nlohmann::ordered_json about = {{"program", program}, {"size", size}, {"status", status}, {"ranks", described}};
  return fmt::format("{{\"displayTimeUnit\":\"ns\",\n\"otherData\":{},\n\"traceEvents\":[\n{}", dump(about), names);
}

void append_event(std::string& text, const TraceEvent& event, int rank) {
  const TraceKind& kind = *event.kind;
  const auto out = std::back_inserter(text);
  const double begin = static_cast<double>(event.begin) / kMicrosecond;
  if (kind.lane == TraceLane::kCounter) {
    fmt::format_to(out, R"(,{}{{"ph":"C","name":"{}","pid":{},"ts":{:.3f},"args":{{"{}":{}}}}})", '\n', kind.name, rank,
                   begin, kind.value, event.value);
    return;
  }
  fmt::format_to(out, R"(,{}{{"ph":"X","name":"{}{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f})", '\n', kind.name,
                 kind.numbered ? fmt::format(" {}", event.value) : "", rank, static_cast<int>(kind.lane), begin,
                 static_cast<double>(event.end - event.begin) / kMicrosecond);
  if (!kind.value.empty()) {
    fmt::format_to(out, R"(,"args":{{"{}":{}}})", kind.value, event.value);
  }
  text += '}';
}

std::string trace_tail() { return "\n]}\n"; }

void sort_events(std::vector<TraceEvent>& events) {
  // Events stand in the order of their ends: of two with the same times the later one contains the other.
  std::ranges::reverse(events);
  std::ranges::stable_sort(events, [](const TraceEvent& a, const TraceEvent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
}

}  // namespace specdec
