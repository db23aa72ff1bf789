#include "parallel/all_reduce_bench.h"

#include <chrono>
#include <memory>
#include <optional>
#include <type_traits>

#include "parallel/crafted_payload.h"
#include "parallel/page_buffer.h"

namespace specdec {
namespace {

using Clock = std::chrono::steady_clock;

/// This rank's account of one contender.
struct Tally {
  std::unique_ptr<DevicePayload> on_device;  // or none
  std::vector<double> seconds;
  std::int64_t wrong = 0;
  std::int64_t late = 0;
};

}  // namespace

template <typename T>
std::vector<AllReduceFigures> bench_all_reduce(Communicator& control, std::span<const Contender> contenders,
                                               std::size_t elements, const BenchEffort& effort,
                                               const std::function<bool()>& stop) {
  const CraftedPayload<T> payload(control.rank(), control.size());
  const PageBuffer<T> buffer(elements);
  const std::span<T> data = buffer.span();
  std::uint64_t number = 0;
  std::vector<Tally> tallies(contenders.size());
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    if (contenders[i].on_device) {
      tallies[i].on_device = contenders[i].on_device(std::is_same_v<T, float> ? DType::kF32 : DType::kBF16, elements);
    }
  }
  const auto run = [&](std::size_t contender, int runs, bool timed) {
    Communicator& group = *contenders[contender].group;
    Tally& tally = tallies[contender];
    const std::int64_t late = contenders[contender].late_so_far();
    for (int i = 0; i < runs; ++i) {
      payload.fill(data, ++number);
      if (tally.on_device) {
        tally.on_device->write(std::as_bytes(data));
      }
      control.barrier();
      std::optional<double> by_device;
      const Clock::time_point begin = Clock::now();
      if (tally.on_device) {
        by_device = tally.on_device->all_reduce();
      } else {
        group.all_reduce(data, Stream{});
      }
      const Clock::time_point end = Clock::now();
      for (int which = 0; which < (tally.on_device ? tally.on_device->count() : 1); ++which) {
        if (tally.on_device) {
          tally.on_device->read(which, std::as_writable_bytes(data));
        }
        tally.wrong += static_cast<std::int64_t>(payload.count_wrong(data, number));
      }
      if (timed) {
        tally.seconds.push_back(by_device.value_or(std::chrono::duration<double>(end - begin).count()));
      }
    }
    tally.late += timed ? contenders[contender].late_so_far() - late : 0;
  };
  if (!take_turns(control, contenders.size(), effort, run, stop)) {
    return {};
  }
  std::vector<AllReduceFigures> figures;
  figures.reserve(tallies.size());
  for (const Tally& tally : tallies) {
    figures.push_back({.iterations = static_cast<int>(tally.seconds.size()),
                       .seconds = summarise(maximum_over_ranks(control, tally.seconds)),
                       .wrong = sum_over_ranks(control, tally.wrong),
                       .late = maximum_over_ranks(control, tally.late)});
  }
  return figures;
}

template std::vector<AllReduceFigures> bench_all_reduce<float>(Communicator&, std::span<const Contender>, std::size_t,
                                                               const BenchEffort&, const std::function<bool()>&);
template std::vector<AllReduceFigures> bench_all_reduce<BF16>(Communicator&, std::span<const Contender>, std::size_t,
                                                              const BenchEffort&, const std::function<bool()>&);

}  // namespace specdec
