#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "backend/error.h"
#include "parallel/clock_offset.h"
#include "parallel/thread_communicator.h"
#include "parallel/timed_communicator.h"
#include "parallel/tracer.h"
#include "runtime/job_trace.h"
#include "runtime/trace_json.h"
#include "tests/support/temporary_directory.h"

namespace specdec::tests {
namespace {

using Json = nlohmann::json;

constexpr TraceKind kWork{.name = "work", .value = "rows"};
constexpr TraceKind kPart{.name = "part", .value = "part", .numbered = true};
constexpr TraceKind kCurve{.name = "curve", .value = "height", .lane = TraceLane::kCounter};

TEST(Tracer, SpansEndInsideOut) {
  Tracer tracer(10);
  {
    const Span outer(&tracer, kWork, 5);
    const Span inner(&tracer, kPart, 1);
  }
  const auto events = tracer.events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, &kPart);
  EXPECT_EQ(events[1].kind, &kWork);
  EXPECT_EQ(events[1].value, 5);
  EXPECT_LE(events[1].begin, events[0].begin);
  EXPECT_LE(events[0].begin, events[0].end);
  EXPECT_LE(events[0].end, events[1].end);
}

TEST(Tracer, ATimedSpanSaysWhatItsEventSays) {
  Tracer tracer(10);
  TimedSpan span(&tracer, kWork);
  const double seconds = span.end(7);
  const TraceEvent event = tracer.events().front();
  EXPECT_EQ(seconds, static_cast<double>(event.end - event.begin) * 1e-9);
  EXPECT_EQ(event.value, 7);
  EXPECT_GE(TimedSpan(nullptr, kWork).end(), 0.0);
}

TEST(Tracer, KeepsTheFirstEventsAndCountsTheRest) {
  Tracer tracer(3);
  for (int i = 0; i < 5; ++i) {
    count(&tracer, kCurve, i);
  }
  ASSERT_EQ(tracer.events().size(), 3U);
  EXPECT_EQ(tracer.events()[2].value, 2);
  EXPECT_EQ(tracer.dropped(), 2);
}

/// Writes down what it is told, "+name" for an open and "-name" for the close that belongs to it.
class WrittenRanges final : public RangeSink {
 public:
  void push(const TraceKind& kind, std::optional<std::int64_t> value) override {
    std::array<char, kLongestRangeName + 1> name{};
    range_name(kind, value, name);
    open_.emplace_back(name.data());
    told.push_back("+" + open_.back());
  }
  void pop() override {
    ASSERT_FALSE(open_.empty());
    told.push_back("-" + open_.back());
    open_.pop_back();
  }
  bool all_closed() const { return open_.empty(); }

  std::vector<std::string> told;

 private:
  std::vector<std::string> open_;
};

TEST(Ranges, AreTheSpansOfTheTraceByTheirNames) {
  WrittenRanges ranges;
  Tracer tracer(10, &ranges);
  {
    const Span outer(&tracer, kWork, 5);
    const Span part(&tracer, kPart, 3);
    TimedSpan timed(&tracer, kWork);
    timed.end(7);
    count(&tracer, kCurve, 1);
    const TimedSpan not_ended(&tracer, kPart);
  }
  run_ranks(1, [&](Communicator& group) {
    TimedCommunicator timed(group, &tracer);
    timed.barrier();
  });
  EXPECT_EQ(ranges.told, (std::vector<std::string>{"+work", "+part 3", "+work", "-work", "+part", "-part", "-part 3",
                                                   "-work", "+barrier", "-barrier"}));
  EXPECT_EQ(tracer.events().size(), 5U) << "three spans, a curve and a collective";
}

TEST(Ranges, NeedNoRoomForEventsAndCloseWhenWorkIsThrownOut) {
  WrittenRanges ranges;
  Tracer tracer(0, &ranges);
  EXPECT_THROW(
      {
        const Span outer(&tracer, kWork);
        TimedSpan inner(&tracer, kPart);
        throw std::runtime_error("out");
      },
      std::runtime_error);
  EXPECT_EQ(ranges.told, (std::vector<std::string>{"+work", "+part", "-part", "-work"}));
  EXPECT_TRUE(ranges.all_closed());
  EXPECT_TRUE(tracer.events().empty());
}

TEST(Ranges, NamesAreCutToTheirRoom) {
  static constexpr TraceKind kLong{
      .name = "a name that is much longer than any that a trace has had or should ever have", .numbered = true};
  std::array<char, kLongestRangeName + 1> name{};
  name.fill('x');
  range_name(kLong, INT64_MIN, name);
  const std::string text(name.data());
  EXPECT_LE(text.size(), kLongestRangeName);
  EXPECT_TRUE(text.starts_with("a name that is much longer") && text.ends_with(" -9223372036854775808")) << text;
}

TEST(TraceJson, PutsWhatContainsOthersFirst) {
  std::vector<TraceEvent> events = {{.kind = &kPart, .begin = 5, .end = 9},
                                    {.kind = &kPart, .begin = 2, .end = 5},
                                    {.kind = &kWork, .begin = 2, .end = 5},
                                    {.kind = &kWork, .begin = 2, .end = 9}};
  sort_events(events);
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected = {{2, 9}, {2, 5}, {2, 5}, {5, 9}};
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(std::pair(events[i].begin, events[i].end), expected[i]) << i;
  }
  // Of two with the same times, the one that ended later contains the other.
  EXPECT_EQ(events[1].kind, &kWork);
  EXPECT_EQ(events[2].kind, &kPart);
}

TEST(TraceJson, IsJsonWhateverTheNames) {
  TracedRank rank{.rank = 3, .events = 2, .dropped = 1};
  std::string_view("a\"b\\\xff").copy(rank.host.data(), 5);
  std::string text = trace_head("pro\"gram", 4, "line\n2", {&rank, 1});
  append_event(text, {.kind = &kPart, .begin = 1'234'567, .end = 1'234'570, .value = 12}, 3);
  append_event(text, {.kind = &kCurve, .begin = -1, .end = -1, .value = 9}, 3);
  const Json json = Json::parse(text + trace_tail());
  EXPECT_EQ(json["otherData"]["program"], "pro\"gram");
  EXPECT_EQ(json["otherData"]["status"], "line\n2");
  EXPECT_EQ(json["otherData"]["ranks"][0]["dropped"], 1);
  const Json& span = json["traceEvents"].end()[-2];
  EXPECT_EQ(span,
            Json::parse(R"({"ph":"X","name":"part 12","pid":3,"tid":0,"ts":1234.567,"dur":0.003,"args":{"part":12}})"));
  const Json& curve = json["traceEvents"].end()[-1];
  EXPECT_EQ(curve, Json::parse(R"({"ph":"C","name":"curve","pid":3,"ts":-0.001,"args":{"height":9}})"));
}

/// A clock of rank `rank` that is far off and drifts.
std::int64_t wrong_clock(int rank) {
  const std::int64_t now = Tracer::now();
  return rank == 0 ? now : now + rank * 3'000'000'000 + now / 1'000'000 * rank;
}

TEST(CommonClock, OffsetsAreFoundWithinTheirUncertainty) {
  run_ranks(4, [](Communicator& group) {
    const int rank = group.rank();
    const ClockOffset first = measure_clock_offset(group, [&] { return wrong_clock(rank); });
    struct Sample {
      std::int64_t before, own, after;
    };
    std::vector<Sample> samples;
    samples.reserve(100);
    for (int i = 0; i < 100; ++i) {
      samples.push_back({Tracer::now(), wrong_clock(rank), Tracer::now()});
    }
    const ClockOffset last = measure_clock_offset(group, [&] { return wrong_clock(rank); });
    if (rank == 0) {
      EXPECT_EQ(first.offset, 0);
      EXPECT_EQ(first.uncertainty, 0);
    } else {
      EXPECT_GT(first.uncertainty, 0);
      EXPECT_LT(first.uncertainty, 1'000'000'000);
    }
    // Between two readings the line is no further off than the worse of them; this clock drifts in steps of `rank` nanoseconds.
    const CommonClock clock(first, last);
    const std::int64_t bound = std::max(first.uncertainty, last.uncertainty) + rank + 1;
    for (const Sample& sample : samples) {
      EXPECT_GE(clock(sample.own), sample.before - bound) << "rank " << rank;
      EXPECT_LE(clock(sample.own), sample.after + bound) << "rank " << rank;
    }
  });
}

TEST(CommonClock, OneHostHasOneClock) {
  run_ranks(3, [](Communicator& group) {
    const ClockOffset reading = measure_clock_offset(group);
    EXPECT_EQ(reading.offset, 0);
    EXPECT_EQ(reading.uncertainty, 0);
    EXPECT_GT(reading.at, 0);
  });
}

TEST(CommonClock, FollowsTheLineBetweenTwoReadings) {
  const CommonClock clock({.at = 1000, .offset = 50}, {.at = 2000, .offset = 70});
  EXPECT_EQ(clock(1000), 1050);
  EXPECT_EQ(clock(1500), 1560);
  EXPECT_EQ(clock(2000), 2070);
  EXPECT_EQ(CommonClock({.at = 1000, .offset = 50})(5000), 5050);
}

Json read_json(const std::filesystem::path& path) { return Json::parse(std::ifstream(path)); }

std::vector<Json> named(const Json& trace, const std::string& name, int rank) {
  std::vector<Json> found;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == name && event["pid"] == rank) {
      found.push_back(event);
    }
  }
  return found;
}

/// An all-reduce, a gather to rank 1 and a broadcast from rank 2 among four ranks, of which rank 3 comes late, as a rule.
void trace_ranks(const std::filesystem::path& directory) {
  run_ranks(4, [&](Communicator& group) {
    JobTrace trace(directory, "test", "host" + std::to_string(group.rank()), group, 100);
    TimedCommunicator timed(group, &trace.tracer(), 0);
    std::vector<float> data(10, 1.0F);
    std::vector<std::byte> all(40 * sizeof(float));
    const auto come = [&] {
      group.barrier();
      if (group.rank() == 3) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    };
    come();
    timed.all_reduce(data, {});
    come();
    timed.gather(std::as_bytes(std::span(data)), all, 1, {});
    come();
    timed.broadcast(std::as_writable_bytes(std::span(data)), 2, {});
    Communicator* const groups[] = {&group};
    EXPECT_EQ(trace.finish(group.rank() == 0 ? "ok" : "not asked", groups), "");
  });
}

std::int64_t nanoseconds(const Json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

/// What rank `rank` waits for in `name`, as all ranks' events say: who came last of those whom the operation needs, and when.
std::pair<int, std::int64_t> awaited(const Json& trace, const std::string& name, int rank) {
  std::pair<int, std::int64_t> last{rank, nanoseconds(named(trace, name, rank).at(0)["ts"])};
  for (int other = 0; other < 4; ++other) {
    const bool needed = name == "all_reduce" || (name == "gather" && rank == 1) || (name == "broadcast" && other == 2);
    const std::int64_t came = nanoseconds(named(trace, name, other).at(0)["ts"]);
    if (needed && came > last.second) {
      last = {other, came};
    }
  }
  return last;
}

TEST(JobTrace, WaitsAreForWhoCameLast) {
  const TemporaryDirectory directory;
  trace_ranks(directory.path());
  const Json merged = read_json(directory.path() / "trace.json");
  EXPECT_EQ(merged["otherData"]["status"], "ok");
  EXPECT_EQ(merged["otherData"]["ranks"].size(), 4U);
  EXPECT_EQ(merged["otherData"]["ranks"][3]["host"], "host3");
  for (int rank = 0; rank < 4; ++rank) {
    const auto waits = named(merged, "wait", rank);
    std::size_t expected_waits = 0;
    for (const std::string name : {"all_reduce", "gather", "broadcast"}) {
      const Json event = named(merged, name, rank).at(0);
      EXPECT_EQ(event["args"]["bytes"], 40);
      const std::int64_t begin = nanoseconds(event["ts"]);
      const auto [whom, came] = awaited(merged, name, rank);
      EXPECT_GE(begin + nanoseconds(event["dur"]), came) << name << " left before rank " << whom << " came";
      if (came > begin) {
        ++expected_waits;
        const auto wait = std::ranges::find(waits, event["ts"], [](const Json& w) { return w["ts"]; });
        ASSERT_NE(wait, waits.end()) << name << ", rank " << rank;
        EXPECT_EQ((*wait)["args"]["for_rank"], whom) << name << ", rank " << rank;
        EXPECT_EQ(nanoseconds((*wait)["dur"]), came - begin) << name << ", rank " << rank;
      }
    }
    EXPECT_EQ(waits.size(), expected_waits) << "rank " << rank;
  }
}

TEST(JobTrace, TheMergedFileHasTheEventsOfAllFiles) {
  const TemporaryDirectory directory;
  trace_ranks(directory.path());
  std::multiset<std::string> apart;
  for (int rank = 0; rank < 4; ++rank) {
    const Json own = read_json(directory.path() / ("rank" + std::to_string(rank) + ".json"));
    ASSERT_EQ(own["otherData"]["ranks"].size(), 1U);
    EXPECT_EQ(own["otherData"]["ranks"][0]["rank"], rank);
    for (const Json& event : own["traceEvents"]) {
      EXPECT_EQ(event["pid"], rank);
      apart.insert(event.dump());
    }
  }
  std::multiset<std::string> together;
  const Json merged = read_json(directory.path() / "trace.json");
  for (const Json& event : merged["traceEvents"]) {
    together.insert(event.dump());
  }
  EXPECT_EQ(together, apart);
}

TEST(JobTrace, MoreEventsThanOneChunkAndThanTheRoom) {
  const TemporaryDirectory directory;
  constexpr int kCapacity = 10'000;
  run_ranks(3, [&](Communicator& group) {
    JobTrace trace(directory.path(), "test", "host", group, kCapacity);
    for (int i = 0; i < 4'000 * (1 + group.rank()); ++i) {
      count(&trace.tracer(), kCurve, i);
    }
    const std::string note = trace.finish("ok", {});
    EXPECT_EQ(note, group.rank() == 0 ? "the trace is not complete: rank 2 had no room for its last 2000 events" : "");
  });
  const Json merged = read_json(directory.path() / "trace.json");
  EXPECT_EQ(named(merged, "curve", 0).size(), 4'000U);
  EXPECT_EQ(named(merged, "curve", 1).size(), 8'000U);
  EXPECT_EQ(named(merged, "curve", 2).size(), 10'000U);
  EXPECT_EQ(named(merged, "curve", 2).back()["args"]["height"], kCapacity - 1);
  EXPECT_EQ(merged["otherData"]["ranks"][2]["dropped"], 2'000);
}

TEST(JobTrace, ARankThatEndsAloneLeavesItsFile) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "trace.json") << "of an earlier job";
  std::ofstream(directory.path() / "rank2.json") << "of an earlier job with more ranks";
  run_ranks(2, [&](Communicator& group) {
    JobTrace trace(directory.path(), "test", "host", group, 100);
    count(&trace.tracer(), kCurve, 1);
    if (group.rank() == 0) {
      trace.write_alone("rank 1 died");
      count(&trace.tracer(), kCurve, 2);
    }
  });
  const Json first = read_json(directory.path() / "rank0.json");
  EXPECT_EQ(first["otherData"]["status"], "rank 1 died");
  EXPECT_EQ(named(first, "curve", 0).size(), 1U) << "written once";
  const Json second = read_json(directory.path() / "rank1.json");
  EXPECT_EQ(second["otherData"]["status"], "ended by an error");
  EXPECT_EQ(named(second, "curve", 1).size(), 1U);
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "trace.json"));
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "rank2.json"));
}

TEST(JobTrace, ADirectoryThatCannotBeIsBadInputOnAllRanks) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "file") << "in the way";
  std::atomic<int> refused = 0;
  run_ranks(2, [&](Communicator& group) {
    try {
      const JobTrace trace(directory.path() / "file", "test", "host", group, 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_NE(std::string(error.what()).find("--trace: '" + (directory.path() / "file").string()), std::string::npos);
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace specdec::tests
