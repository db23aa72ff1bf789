#include "parallel/decode_bench.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "parallel/crafted_payload.h"
#include "parallel/page_buffer.h"
#include "parallel/stand_in_work.h"

namespace specdec {
namespace {

using Clock = std::chrono::steady_clock;

// More than caches hold; ranks share the memory of a host.
constexpr std::size_t kMostWeights = std::size_t{256} << 20;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// This rank's account of one contender, in seconds.
struct PassTally {
  std::vector<double> token;
  std::vector<double> all_reduce;  // [tokens * all-reduces of a token]
  std::vector<double> broadcast;
  std::int64_t wrong = 0;
  std::int64_t late = 0;
};

/// One rank's part of the passes.
template <typename T>
class Pass {
 public:
  Pass(Communicator& control, const DecodeShape& shape)
      : control_(control),
        shape_(shape),
        payload_(control.rank(), control.size()),
        buffer_(shape.elements),
        round_(shape.round_bytes),
        weights_(shape.gap ? 0 : std::min(kMostWeights, shape.layers * shape.layer_bytes + shape.head_bytes)) {}

  void run(Communicator& group, PassTally& tally, bool timed) {
    control_.barrier();
    const Clock::time_point begin = Clock::now();
    group.broadcast(round_, 0, Stream{});
    Clock::time_point end = Clock::now();
    if (timed) {
      tally.broadcast.push_back(seconds_between(begin, end));
    }
    double gap_began = core_seconds();
    for (std::int64_t i = 0; i < 2 * shape_.layers; ++i) {
      // Filling the payload and, below, verifying the sum are part of the gap: a layer touches both too.
      payload_.fill(buffer_.span(), ++number_);
      compute(gap_began);
      const Clock::time_point called = Clock::now();
      group.all_reduce(buffer_.span(), Stream{});
      end = Clock::now();
      gap_began = core_seconds();
      tally.wrong += static_cast<std::int64_t>(payload_.count_wrong(buffer_.span(), number_));
      if (timed) {
        tally.all_reduce.push_back(seconds_between(called, end));
      }
    }
    weights_.read(shape_.head_bytes);
    if (timed) {
      tally.token.push_back(seconds_between(begin, Clock::now()));
    }
  }

 private:
  /// Half a layer, of which some was done since `began` already.
  void compute(double began) {
    if (shape_.gap) {
      burn_core_until(began + *shape_.gap);
    } else {
      weights_.read(shape_.layer_bytes / 2);
    }
  }

  Communicator& control_;
  DecodeShape shape_;
  CraftedPayload<T> payload_;
  PageBuffer<T> buffer_;
  std::vector<std::byte> round_;
  WeightReader weights_;
  std::uint64_t number_ = 0;
};

double sum(std::span<const double> values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// Sums of so many elements each.
std::vector<double> sums_of(std::span<const double> values, std::size_t each) {
  std::vector<double> sums;
  for (std::size_t begin = 0; begin + each <= values.size(); begin += each) {
    sums.push_back(sum(values.subspan(begin, each)));
  }
  return sums;
}

DecodeFigures figures_of(Communicator& control, const PassTally& tally, std::size_t all_reduces) {
  const double compute = sum(tally.token) - sum(tally.broadcast) - sum(tally.all_reduce);
  const std::vector<double> each = maximum_over_ranks(control, tally.all_reduce);
  return {.tokens = static_cast<int>(tally.token.size()),
          .token = summarise(maximum_over_ranks(control, tally.token)),
          .all_reduce = summarise(each),
          .all_reduces = summarise(maximum_over_ranks(control, sums_of(tally.all_reduce, all_reduces))),
          .broadcast = summarise(maximum_over_ranks(control, tally.broadcast)),
          .gap = each.empty() ? 0 : compute / static_cast<double>(each.size()),
          .wrong = sum_over_ranks(control, tally.wrong),
          .late = maximum_over_ranks(control, tally.late)};
}

}  // namespace

template <typename T>
std::vector<DecodeFigures> bench_decode(Communicator& control, std::span<const Contender> contenders,
                                        const DecodeShape& shape, const BenchEffort& effort,
                                        const std::function<bool()>& stop) {
  Pass<T> pass(control, shape);
  std::vector<PassTally> tallies(contenders.size());
  const auto run = [&](std::size_t contender, int runs, bool timed) {
    PassTally& tally = tallies[contender];
    const std::int64_t late = contenders[contender].late_so_far();
    for (int i = 0; i < runs; ++i) {
      pass.run(*contenders[contender].group, tally, timed);
    }
    tally.late += timed ? contenders[contender].late_so_far() - late : 0;
  };
  if (!take_turns(control, contenders.size(), effort, run, stop)) {
    return {};
  }
  std::vector<DecodeFigures> figures;
  figures.reserve(tallies.size());
  for (const PassTally& tally : tallies) {
    figures.push_back(figures_of(control, tally, static_cast<std::size_t>(2 * shape.layers)));
  }
  return figures;
}

template std::vector<DecodeFigures> bench_decode<float>(Communicator&, std::span<const Contender>, const DecodeShape&,
                                                        const BenchEffort&, const std::function<bool()>&);
template std::vector<DecodeFigures> bench_decode<BF16>(Communicator&, std::span<const Contender>, const DecodeShape&,
                                                       const BenchEffort&, const std::function<bool()>&);

}  // namespace specdec
