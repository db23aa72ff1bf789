#include "parallel/timed_communicator.h"

#include <chrono>

namespace specdec {
namespace {

/// Adds one call to `totals`, also when it throws.
class Timed {
 public:
  Timed(OperationTotals& totals, std::size_t bytes) : totals_(totals), begin_(Clock::now()) {
    ++totals_.calls;
    totals_.bytes += static_cast<std::int64_t>(bytes);
  }
  ~Timed() { totals_.seconds += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  OperationTotals& totals_;
  Clock::time_point begin_;
};

}  // namespace

void TimedCommunicator::all_reduce(std::span<float> data, Stream stream) {
  const Timed timed(totals_.all_reduce, data.size_bytes());
  inner_.all_reduce(data, stream);
}

void TimedCommunicator::all_reduce(std::span<BF16> data, Stream stream) {
  const Timed timed(totals_.all_reduce, data.size_bytes());
  inner_.all_reduce(data, stream);
}

void TimedCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) {
  const Timed timed(totals_.all_gather, mine.size());
  inner_.all_gather(mine, all, stream);
}

void TimedCommunicator::gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) {
  const Timed timed(totals_.gather, mine.size());
  inner_.gather(mine, all, root, stream);
}

void TimedCommunicator::broadcast(std::span<std::byte> data, int root, Stream stream) {
  const Timed timed(totals_.broadcast, data.size());
  inner_.broadcast(data, root, stream);
}

void TimedCommunicator::barrier() {
  const Timed timed(totals_.barrier, 0);
  inner_.barrier();
}

}  // namespace specdec
