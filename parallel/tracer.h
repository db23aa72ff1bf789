#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "parallel/host_clock.h"

/// What a rank did when: `--trace` (docs/tracing.md), and ranges with the same names for a profiler (nvtx_ranges.h). Whoever has something to
/// show is handed a Tracer*, null when nobody looks: then a Span is one branch.
namespace specdec {

/// The lines of a rank in the picture.
enum class TraceLane : std::uint8_t { kCompute, kCommunication, kCounter };

/// Whose arrival a collective needs before it can end on a rank.
enum class TraceWait : std::uint8_t {
  kNobody,     ///< no collective
  kAll,        ///< all ranks', everywhere
  kAllAtRoot,  ///< all ranks' on the root, nobody's elsewhere
  kRoot,       ///< the root's
};

/// What an event is: a constant with a name, beside the code that makes the event.
struct TraceKind {
  std::string_view name;
  std::string_view value = {};  ///< what the event's number counts, "bytes"; empty: it has none
  bool numbered = false;        ///< the number belongs to the name, "layer 3"
  TraceLane lane = TraceLane::kCompute;
  TraceWait wait = TraceWait::kNobody;
};

struct TraceEvent {
  const TraceKind* kind = nullptr;
  std::int64_t begin = 0;  ///< nanoseconds of Tracer::now()
  std::int64_t end = 0;
  std::int64_t value = 0;
  std::int32_t group = -1;  ///< a collective's group, as its TimedCommunicator was told
  std::int32_t root = -1;   ///< a collective's root, where it has one
};

/// Who is told when a span opens and closes, on the thread that it belongs to; spans nest.
class RangeSink {
 public:
  virtual ~RangeSink() = default;
  /// `value`: the event's number where it is known by then.
  virtual void push(const TraceKind& kind, std::optional<std::int64_t> value) = 0;
  virtual void pop() = 0;

 protected:
  RangeSink() = default;
  RangeSink(const RangeSink&) = default;
  RangeSink& operator=(const RangeSink&) = default;
};

inline constexpr std::size_t kLongestRangeName = 63;
/// The name under which a trace has an event, "layer 3", cut to kLongestRangeName, and zeros up to the end of `out`, which has room for as much.
void range_name(const TraceKind& kind, std::optional<std::int64_t> value, std::span<char> out);

/// One rank's events, in memory that is there before the first: adding one takes no lock, no system call and no memory. What does not
/// fit is counted and dropped, the latest first. One thread adds; any may read what is there.
class Tracer {
 public:
  /// Touches its memory, 40 bytes an event. `ranges`, where there is one, hears of every span and outlives the tracer.
  explicit Tracer(std::size_t capacity, RangeSink* ranges = nullptr) : ranges_(ranges), events_(capacity) {}

  static std::int64_t now() { return host_nanoseconds(); }

  void open(const TraceKind& kind, std::optional<std::int64_t> value) {
    if (ranges_ != nullptr) {
      ranges_->push(kind, value);
    }
  }
  void close() {
    if (ranges_ != nullptr) {
      ranges_->pop();
    }
  }
  /// What was opened also has to be closed.
  void add(const TraceEvent& event) {
    const std::size_t used = used_.load(std::memory_order_relaxed);
    if (used == events_.size()) {
      dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return;
    }
    events_[used] = event;
    used_.store(used + 1, std::memory_order_release);
  }

  /// In the order in which they ended.
  std::span<const TraceEvent> events() const { return std::span(events_).first(used_.load(std::memory_order_acquire)); }
  std::int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  RangeSink* ranges_;
  std::vector<TraceEvent> events_;
  std::atomic<std::size_t> used_{0};
  std::atomic<std::int64_t> dropped_{0};
};

/// One piece of work, from here to the end of the scope. `kind` outlives the tracer.
class Span {
 public:
  Span(Tracer* tracer, const TraceKind& kind, std::int64_t value = 0)
      : tracer_(tracer), kind_(kind), value_(value), begin_(tracer != nullptr ? Tracer::now() : 0) {
    if (tracer_ != nullptr) {
      tracer_->open(kind_, value_);
    }
  }
  Span(Tracer* tracer, const TraceKind&& kind, std::int64_t value = 0) = delete;
  ~Span() {
    if (tracer_ != nullptr) {
      tracer_->close();
      tracer_->add({.kind = &kind_, .begin = begin_, .end = Tracer::now(), .value = value_});
    }
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Tracer* tracer_;
  const TraceKind& kind_;
  std::int64_t value_;
  std::int64_t begin_;
};

/// As Span, for work that the report counts too: both get the same two readings of the clock, so that their sums agree.
class TimedSpan {
 public:
  TimedSpan(Tracer* tracer, const TraceKind& kind) : tracer_(tracer), kind_(kind), begin_(Tracer::now()) {
    if (tracer_ != nullptr) {
      tracer_->open(kind_, std::nullopt);
    }
  }
  TimedSpan(Tracer* tracer, const TraceKind&& kind) = delete;
  ~TimedSpan() { close(); }
  TimedSpan(const TimedSpan&) = delete;
  TimedSpan& operator=(const TimedSpan&) = delete;

  /// Ends it; seconds. What is not ended leaves no event.
  double end(std::int64_t value = 0) {
    close();
    const std::int64_t now = Tracer::now();
    if (tracer_ != nullptr) {
      tracer_->add({.kind = &kind_, .begin = begin_, .end = now, .value = value});
    }
    return static_cast<double>(now - begin_) * 1e-9;
  }

 private:
  void close() {
    if (tracer_ != nullptr && open_) {
      tracer_->close();
      open_ = false;
    }
  }

  Tracer* tracer_;
  const TraceKind& kind_;
  std::int64_t begin_;
  bool open_ = true;
};

/// A figure as it is now, drawn as a curve. `kind` is of TraceLane::kCounter.
inline void count(Tracer* tracer, const TraceKind& kind, std::int64_t value) {
  if (tracer != nullptr) {
    const std::int64_t now = Tracer::now();
    tracer->add({.kind = &kind, .begin = now, .end = now, .value = value});
  }
}

}  // namespace specdec
