#include "runtime/job_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/error.h"
#include "parallel/agree.h"
#include "parallel/value_bytes.h"
#include "runtime/whole_file.h"

namespace specdec {
namespace {

/// The part of a collective in which a rank waits for another to come; the rest is the transport's.
constexpr TraceKind kWait{.name = "wait", .value = "for_rank", .lane = TraceLane::kCommunication};

/// Events that are turned into text, and travel to rank 0, at a time.
constexpr std::size_t kChunkEvents = 4096;
/// Arrivals that travel at a time.
constexpr std::size_t kChunkArrivals = std::size_t{1} << 16;

constexpr const char* kFlag = "--trace";

std::filesystem::path rank_file(const std::filesystem::path& directory, int rank) {
  return directory / fmt::format("rank{}.json", rank);
}

template <typename T>
std::vector<T> gather_all(Communicator& group, std::span<const T> mine) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)), {});
  return all;
}

template <typename T>
std::vector<T> gather_all(Communicator& group, const T& mine) {
  return gather_all(group, std::span<const T>(&mine, 1));
}

/// The wait at the start of `event` on rank `rank` of its group, whose ranks came to it at `arrivals`; of no length when nobody came
/// later.
TraceEvent wait_of(const TraceEvent& event, int rank, std::span<const std::int64_t> arrivals) {
  const bool is_root = rank == event.root;
  const TraceWait rule = event.kind->wait;
  std::ptrdiff_t awaited = rank;
  if (rule == TraceWait::kAll || (rule == TraceWait::kAllAtRoot && is_root)) {
    awaited = std::ranges::max_element(arrivals) - arrivals.begin();
  } else if (rule == TraceWait::kRoot) {
    awaited = event.root;
  }
  const std::int64_t came = arrivals[static_cast<std::size_t>(awaited)];
  // Clocks of several hosts agree up to their uncertainty, so the last arrival can seem to be after the end.
  return {.kind = &kWait, .begin = event.begin, .end = std::clamp(came, event.begin, event.end), .value = awaited};
}

/// Adds the waits of this rank in the collectives of `group`, which `number` stands for. The n-th collective of one rank is the n-th of
/// every other; what the ranks do not all have has no wait. Collective.
void add_waits(std::vector<TraceEvent>& events, Communicator& group, std::int32_t number) {
  std::vector<TraceEvent> mine;
  std::ranges::copy_if(events, std::back_inserter(mine), [&](const TraceEvent& e) { return e.group == number; });
  const std::vector<std::size_t> counts = gather_all(group, mine.size());
  const std::size_t common = std::ranges::min(counts);
  std::vector<TraceEvent> waits;
  for (std::size_t first = 0; first < common; first += kChunkArrivals) {
    const std::size_t count = std::min(kChunkArrivals, common - first);
    std::vector<std::int64_t> came(count);
    std::transform(mine.begin() + static_cast<std::ptrdiff_t>(first),
                   mine.begin() + static_cast<std::ptrdiff_t>(first + count), came.begin(),
                   [](const TraceEvent& e) { return e.begin; });
    const std::vector<std::int64_t> all = gather_all(group, std::span<const std::int64_t>(came));
    std::vector<std::int64_t> arrivals(counts.size());
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t r = 0; r < arrivals.size(); ++r) {
        arrivals[r] = all[r * count + i];
      }
      const TraceEvent wait = wait_of(mine[first + i], group.rank(), arrivals);
      if (wait.end > wait.begin) {
        waits.push_back(wait);
      }
    }
  }
  // As if they had ended first, since a collective that is all wait contains its wait.
  events.insert(events.begin(), waits.begin(), waits.end());
}

std::string text_of(std::span<const TraceEvent> events, int rank) {
  std::string text;
  for (const TraceEvent& event : events) {
    append_event(text, event, rank);
  }
  return text;
}

std::span<const TraceEvent> chunk(const std::vector<TraceEvent>& events, std::size_t number) {
  const std::size_t begin = std::min(number * kChunkEvents, events.size());
  return std::span(events).subspan(begin, std::min(kChunkEvents, events.size() - begin));
}

std::size_t chunks(std::size_t events) { return (events + kChunkEvents - 1) / kChunkEvents; }

}  // namespace

JobTrace::JobTrace(std::filesystem::path directory, std::string program, std::string host, Communicator& control,
                   std::size_t capacity, RangeSink* ranges)
    : directory_(std::move(directory)),
      program_(std::move(program)),
      host_(std::move(host)),
      control_(control),
      tracer_(capacity, ranges) {
  agree(control_, [&] {
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (error) {
      throw_bad_input(fmt::format("{}: '{}' cannot be written: {}", kFlag, directory_.string(), error.message()));
    }
    // What an earlier job has left must not be taken for a part of this one.
    if (control_.rank() == 0) {
      std::filesystem::remove(directory_ / "trace.json", error);
      for (int rank = control_.size(); std::filesystem::remove(rank_file(directory_, rank), error); ++rank) {
      }
    }
    write_own("running", describe({}, first_), {});
  });
  first_ = measure_clock_offset(control_);
  origin_ = Tracer::now();
  control_.broadcast(value_bytes(origin_), 0, {});
}

JobTrace::~JobTrace() { write_alone("ended by an error"); }

std::filesystem::path JobTrace::own_file() const { return rank_file(directory_, control_.rank()); }

TracedRank JobTrace::describe(const std::vector<TraceEvent>& events, const ClockOffset& last) const {
  TracedRank rank{.rank = control_.rank(),
                  .events = static_cast<std::int64_t>(events.size()),
                  .dropped = tracer_.dropped(),
                  .clock_at_start = first_,
                  .clock_at_end = last};
  std::copy_n(host_.begin(), std::min(host_.size(), rank.host.size() - 1), rank.host.begin());
  return rank;
}

std::vector<TraceEvent> JobTrace::events_on(const CommonClock& clock) const {
  const std::span<const TraceEvent> recorded = tracer_.events();
  std::vector<TraceEvent> events(recorded.begin(), recorded.end());
  for (TraceEvent& event : events) {
    event.begin = clock(event.begin) - origin_;
    event.end = clock(event.end) - origin_;
  }
  return events;
}

void JobTrace::write_own(const std::string& status, const TracedRank& rank,
                         const std::vector<TraceEvent>& events) const {
  WholeFile file(own_file(), kFlag);
  file.write(trace_head(program_, control_.size(), status, {&rank, 1}));
  for (std::size_t i = 0; i < chunks(events.size()); ++i) {
    file.write(text_of(chunk(events, i), rank.rank));
    control_.report_progress();
  }
  file.write(trace_tail());
  file.finish();
}

std::string JobTrace::finish(std::string status, std::span<Communicator* const> groups) {
  broadcast_string(control_, status);
  const ClockOffset last = measure_clock_offset(control_);
  std::vector<TraceEvent> events = events_on(CommonClock(first_, last));
  for (std::size_t number = 0; number < groups.size(); ++number) {
    add_waits(events, *groups[number], static_cast<std::int32_t>(number));
  }
  sort_events(events);
  const TracedRank rank = describe(events, last);
  agree(control_, [&] {
    const std::scoped_lock lock(mutex_);
    write_own(status, rank, events);
    written_ = true;
  });
  write_merged(status, rank, events);

  const std::vector<std::int64_t> dropped = gather_all(control_, rank.dropped);
  const auto worst = std::ranges::max_element(dropped);
  if (control_.rank() != 0 || *worst == 0) {
    return {};
  }
  return fmt::format("the trace is not complete: rank {} had no room for its last {} events", worst - dropped.begin(),
                     *worst);
}

/// The same events as in the files of the ranks, chunk by chunk in turn.
void JobTrace::write_merged(const std::string& status, const TracedRank& rank, const std::vector<TraceEvent>& events) {
  const bool root = control_.rank() == 0;
  const std::vector<TracedRank> ranks = gather_all(control_, rank);
  std::unique_ptr<WholeFile> file;  // on rank 0
  agree(control_, [&] {
    if (root) {
      file = std::make_unique<WholeFile>(directory_ / "trace.json", kFlag);
      file->write(trace_head(program_, control_.size(), status, ranks));
    }
  });
  const auto most = std::ranges::max(ranks, {}, &TracedRank::events).events;
  std::vector<std::byte> all;
  for (std::size_t i = 0; i < chunks(static_cast<std::size_t>(most)); ++i) {
    std::string text = text_of(chunk(events, i), rank.rank);
    const std::vector<std::size_t> lengths = gather_all(control_, text.size());
    const std::size_t longest = std::ranges::max(lengths);
    text.resize(longest);
    all.resize(root ? longest * lengths.size() : 0);
    control_.gather(std::as_bytes(std::span(text)), all, 0, {});
    for (std::size_t r = 0; root && r < lengths.size(); ++r) {
      file->write({reinterpret_cast<const char*>(all.data()) + r * longest, lengths[r]});
    }
  }
  agree(control_, [&] {
    if (root) {
      file->write(trace_tail());
      file->finish();
    }
  });
}

void JobTrace::write_alone(const std::string& status) noexcept {
  const std::scoped_lock lock(mutex_);
  if (std::exchange(written_, true)) {
    return;
  }
  try {
    std::vector<TraceEvent> events = events_on(CommonClock(first_));
    sort_events(events);
    write_own(status, describe(events, first_), events);
  } catch (const std::exception&) {
    // The job ends for another reason, which is said elsewhere.
  }
}

}  // namespace specdec
