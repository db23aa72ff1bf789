#include "parallel/timed_communicator.h"

namespace specdec {
namespace {

constexpr TraceKind collective(std::string_view name, TraceWait wait) {
  return {.name = name, .value = "bytes", .lane = TraceLane::kCommunication, .wait = wait};
}
constexpr TraceKind kAllReduce = collective("all_reduce", TraceWait::kAll);
constexpr TraceKind kAllGather = collective("all_gather", TraceWait::kAll);
constexpr TraceKind kGather = collective("gather", TraceWait::kAllAtRoot);
constexpr TraceKind kBroadcast = collective("broadcast", TraceWait::kRoot);
constexpr TraceKind kBarrier = collective("barrier", TraceWait::kAll);

}  // namespace

/// One operation, added to its totals also when it throws.
class TimedCommunicator::Call {
 public:
  Call(const TimedCommunicator& owner, OperationTotals& totals, const TraceKind& kind, std::size_t bytes, int root = -1)
      : owner_(owner),
        totals_(totals),
        kind_(kind),
        bytes_(static_cast<std::int64_t>(bytes)),
        root_(root),
        begin_(Tracer::now()) {
    if (owner_.tracer_ != nullptr) {
      owner_.tracer_->open(kind_, bytes_);
    }
  }
  ~Call() {
    if (owner_.tracer_ != nullptr) {
      owner_.tracer_->close();
    }
    const std::int64_t end = Tracer::now();
    ++totals_.calls;
    totals_.bytes += bytes_;
    totals_.seconds += static_cast<double>(end - begin_) * 1e-9;
    if (owner_.tracer_ != nullptr) {
      owner_.tracer_->add(
          {.kind = &kind_, .begin = begin_, .end = end, .value = bytes_, .group = owner_.group_, .root = root_});
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  const TimedCommunicator& owner_;
  OperationTotals& totals_;
  const TraceKind& kind_;
  std::int64_t bytes_;
  int root_;
  std::int64_t begin_;
};

void TimedCommunicator::all_reduce(std::span<float> data, Stream stream) {
  const Call call(*this, totals_.all_reduce, kAllReduce, data.size_bytes());
  inner_.all_reduce(data, stream);
}

void TimedCommunicator::all_reduce(std::span<BF16> data, Stream stream) {
  const Call call(*this, totals_.all_reduce, kAllReduce, data.size_bytes());
  inner_.all_reduce(data, stream);
}

void TimedCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) {
  const Call call(*this, totals_.all_gather, kAllGather, mine.size());
  inner_.all_gather(mine, all, stream);
}

void TimedCommunicator::gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) {
  const Call call(*this, totals_.gather, kGather, mine.size(), root);
  inner_.gather(mine, all, root, stream);
}

void TimedCommunicator::broadcast(std::span<std::byte> data, int root, Stream stream) {
  const Call call(*this, totals_.broadcast, kBroadcast, data.size(), root);
  inner_.broadcast(data, root, stream);
}

void TimedCommunicator::barrier() {
  const Call call(*this, totals_.barrier, kBarrier, 0);
  inner_.barrier();
}

}  // namespace specdec
