#include "tests/bench/roofs.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "backend/cpu/core_distance.h"
#include "backend/error.h"
#include "runtime/clock.h"
#include "runtime/statistics.h"

namespace specdec {
namespace {

constexpr std::size_t kLine = 8;  ///< words of a cache line

/// Streams that lie side by side, each read from its own beginning; a line of each in turn, into accumulators of its own.
template <int kStreams, bool kPrefetch>
__attribute__((target("avx2"))) void read_avx2(Words words) {
  constexpr std::size_t kAhead = 128;
  const std::size_t length = words.size() / kStreams / kLine * kLine;
  __m256i sums[kStreams][2] = {};
  for (std::size_t i = 0; i < length; i += kLine) {
#pragma GCC unroll 16
    for (int stream = 0; stream < kStreams; ++stream) {
      const std::uint64_t* at = words.data() + static_cast<std::size_t>(stream) * length + i;
      if constexpr (kPrefetch) {
        _mm_prefetch(reinterpret_cast<const char*>(at + kAhead), _MM_HINT_T0);
      }
#pragma GCC unroll 16
      for (int half = 0; half < 2; ++half) {
        sums[stream][half] =
            _mm256_add_epi64(sums[stream][half], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + half * 4)));
      }
    }
  }
#pragma GCC unroll 16
  for (const auto& of_stream : sums) {
    asm volatile("" : : "x"(of_stream[0]), "x"(of_stream[1]));
  }
}

template <int kStreams, bool kPrefetch>
__attribute__((target("avx512f"))) void read_avx512(Words words) {
  constexpr std::size_t kAhead = 128;
  const std::size_t length = words.size() / kStreams / kLine * kLine;
  __m512i sums[kStreams] = {};
  for (std::size_t i = 0; i < length; i += kLine) {
#pragma GCC unroll 16
    for (int stream = 0; stream < kStreams; ++stream) {
      const std::uint64_t* at = words.data() + static_cast<std::size_t>(stream) * length + i;
      if constexpr (kPrefetch) {
        _mm_prefetch(reinterpret_cast<const char*>(at + kAhead), _MM_HINT_T0);
      }
      sums[stream] = _mm512_add_epi64(sums[stream], _mm512_loadu_si512(at));
    }
  }
#pragma GCC unroll 16
  for (const __m512i& sum : sums) {
    asm volatile("" : : "v"(sum));
  }
}

constexpr int kAccumulators = 12;  ///< more than latency times the units that any core has, fewer than registers
constexpr std::int64_t kProducts = 4'000'000;

/// 16 fp32 sums a register: of one product each, or with AVX-512 BF16 of a pair.
template <bool kBf16>
__attribute__((target("avx512f,avx512bf16"))) void add_avx512(Words /*words*/) {
  __m512 sums[kAccumulators] = {};
#pragma GCC unroll 16
  for (__m512& sum : sums) {
    asm volatile("" : "+v"(sum));  // each another one, for all that the compiler knows
  }
  __m512 a = kBf16 ? _mm512_castsi512_ps(_mm512_set1_epi32(0x3f803f80)) : _mm512_set1_ps(1.0F);  // ones
  for (std::int64_t i = 0; i < kProducts; ++i) {
    asm volatile("" : "+v"(a));  // an operand that is new each time: products are not taken out of the loop
#pragma GCC unroll 16
    for (__m512& sum : sums) {
      if constexpr (kBf16) {
        sum = _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)a);
      } else {
        sum = _mm512_fmadd_ps(a, a, sum);
      }
    }
  }
#pragma GCC unroll 16
  for (const __m512& sum : sums) {
    asm volatile("" : : "v"(sum));
  }
}

__attribute__((target("avx2,fma"))) void add_fp32_avx2(Words /*words*/) {
  __m256 sums[kAccumulators] = {};
#pragma GCC unroll 16
  for (__m256& sum : sums) {
    asm volatile("" : "+x"(sum));  // each another one, for all that the compiler knows
  }
  __m256 a = _mm256_set1_ps(1.0F);
  for (std::int64_t i = 0; i < kProducts; ++i) {
    asm volatile("" : "+x"(a));
#pragma GCC unroll 16
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(a, a, sum);
    }
  }
#pragma GCC unroll 16
  for (const __m256& sum : sums) {
    asm volatile("" : : "x"(sum));
  }
}

using Bits = std::uint32_t __attribute__((vector_size(64)));

/// Pairs are multiplied by VDPBF16PS, which takes two of them, or each by itself once it is widened to fp32: which of the two is quicker is the processor's.
template <int kRows, bool kPairs, bool kPrefetch>
__attribute__((target("avx512f,avx512bf16"))) void score_bf16(Words words) {
  constexpr std::size_t kAhead = 2048;
  constexpr int kLines = (kAccumulators + kRows - 1) / kRows;  // of weights at a time, so that there are sums enough
  __m512 sums[kLines][kRows] = {};
#pragma GCC unroll 16
  for (auto& of_line : sums) {
#pragma GCC unroll 16
    for (__m512& sum : of_line) {
      asm volatile("" : "+v"(sum));
    }
  }
  __m512 x = kPairs ? _mm512_castsi512_ps(_mm512_set1_epi32(0x3f803f80)) : _mm512_set1_ps(1.0F);
  constexpr std::size_t kStep = kLine * kLines;  // fewer words at the end are left out: eleven lines at most
  for (std::size_t i = 0; i + kStep <= words.size(); i += kStep) {
    asm volatile("" : "+v"(x));
#pragma GCC unroll 16
    for (int line = 0; line < kLines; ++line) {
      const std::uint64_t* at = words.data() + i + static_cast<std::size_t>(line) * kLine;
      if constexpr (kPrefetch) {
        _mm_prefetch(reinterpret_cast<const char*>(at + kAhead), _MM_HINT_T1);
      }
      const __m512i weights = _mm512_loadu_si512(at);
      const __m512 first = (__m512)((Bits)weights << 16);
      const __m512 second = (__m512)((Bits)weights & 0xffff0000U);
#pragma GCC unroll 16
      for (__m512& sum : sums[line]) {
        if constexpr (kPairs) {
          sum = _mm512_dpbf16_ps(sum, (__m512bh)weights, (__m512bh)x);
        } else {
          sum = _mm512_fmadd_ps(second, x, _mm512_fmadd_ps(first, x, sum));
        }
      }
    }
  }
#pragma GCC unroll 16
  for (const auto& of_line : sums) {
#pragma GCC unroll 16
    for (const __m512& sum : of_line) {
      asm volatile("" : : "v"(sum));
    }
  }
}

template <int kRows>
std::vector<RoofWay> ways_to_score_rows() {
  std::vector<RoofWay> ways{{"widened", score_bf16<kRows, false, false>},
                            {"widened, prefetch", score_bf16<kRows, false, true>}};
  if (__builtin_cpu_supports("avx512bf16") != 0) {
    ways.push_back({"pairs", score_bf16<kRows, true, false>});
    ways.push_back({"pairs, prefetch", score_bf16<kRows, true, true>});
  }
  return ways;
}

template <int... kRows>
constexpr auto ways_by_rows(std::integer_sequence<int, kRows...> /*rows*/) {
  return std::array{&ways_to_score_rows<kRows + 1>...};
}

bool has_avx512() { return __builtin_cpu_supports("avx512f") != 0; }

/// Binds the calling thread to one of `cores`, where there are as many.
void bind_to(const std::vector<int>& cores, int thread) {
  if (static_cast<std::size_t>(thread) >= cores.size()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores[static_cast<std::size_t>(thread)], &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

Words words_of(const std::byte* begin, std::size_t bytes) {
  return {reinterpret_cast<const std::uint64_t*>(begin), bytes / sizeof(std::uint64_t)};
}

std::vector<RoofWay> ways_to_read() {
  std::vector<RoofWay> ways{{"avx2, 1 stream", read_avx2<1, false>},
                            {"avx2, 4 streams", read_avx2<4, false>},
                            {"avx2, 1 stream, prefetch", read_avx2<1, true>},
                            {"avx2, 4 streams, prefetch", read_avx2<4, true>}};
  if (has_avx512()) {
    ways.push_back({"avx512, 1 stream", read_avx512<1, false>});
    ways.push_back({"avx512, 4 streams", read_avx512<4, false>});
    ways.push_back({"avx512, 1 stream, prefetch", read_avx512<1, true>});
    ways.push_back({"avx512, 4 streams, prefetch", read_avx512<4, true>});
  }
  return ways;
}

std::vector<RoofWay> ways_to_add() {
  std::vector<RoofWay> ways;
  const double adds = static_cast<double>(kProducts) * kAccumulators * 2;
  if (__builtin_cpu_supports("avx512bf16") != 0) {
    ways.push_back({"bf16, avx512_bf16", add_avx512<true>, adds * 32});
  }
  if (has_avx512()) {
    ways.push_back({"fp32, avx512", add_avx512<false>, adds * 16});
  } else {
    ways.push_back({"fp32, avx2", add_fp32_avx2, adds * 8});
  }
  return ways;
}

std::vector<RoofWay> ways_to_score(std::int64_t rows) {
  check(rows >= 1, "ways_to_score: a row at least");
  static constexpr auto kByRows = ways_by_rows(std::make_integer_sequence<int, kMostRows>());
  return has_avx512() && rows <= kMostRows ? kByRows[static_cast<std::size_t>(rows - 1)]() : std::vector<RoofWay>();
}

RoofTeam::RoofTeam(int threads) : pool_(threads) {
  CPU_ZERO(&callers_);
  sched_getaffinity(0, sizeof callers_, &callers_);
  pool_.run([&, cores = own_cores()](int thread) { bind_to(cores, thread); });
}

RoofTeam::~RoofTeam() { sched_setaffinity(0, sizeof callers_, &callers_); }

double RoofTeam::time(const RoofWay& way, std::span<const Words> buffers) {
  pool_.run([](int) {});  // wakes them
  const double start = now_seconds();
  pool_.run([&](int thread) {
    const auto part = static_cast<std::size_t>(thread);
    const auto parts = static_cast<std::size_t>(size());
    for (const Words words : buffers) {
      const std::size_t lines = words.size() / kLine;
      const std::size_t begin = lines * part / parts * kLine;
      const std::size_t end = lines * (part + 1) / parts * kLine;
      way.pass(words.subspan(begin, end - begin));
    }
  });
  return now_seconds() - start;
}

double RoofTeam::line_seconds() {
  if (size() > CPU_COUNT(&callers_)) return 0;
  constexpr int kTurns = 400;
  constexpr int kTries = 10;
  constexpr int kRounds = 10'000;  // a neighbour may have one of the cores for a while
  for (int i = 0; i < kRounds && size() > 1; ++i) {
    if (const auto seconds = specdec::line_seconds(pool_, pool_.size() - 1, kTurns, kTries)) return *seconds;
    sched_yield();
  }
  return 0;
}

Roofs::Roofs(DType dtype, std::span<const std::int64_t> row_counts) {
  const auto roof_of = [](std::vector<RoofWay> ways) {
    const std::size_t count = ways.size();
    return Roof{std::move(ways), std::vector<std::vector<double>>(count)};
  };
  read_ = roof_of(ways_to_read());
  for (const std::int64_t rows : row_counts) {
    of_rows_.push_back(roof_of(dtype == DType::kBF16 ? ways_to_score(rows) : std::vector<RoofWay>()));
  }
}

void Roofs::measure(RoofTeam& team, std::span<const Words> weights) {
  const auto measure = [&](Roof& roof) {
    for (std::size_t way = 0; way < roof.ways.size(); ++way) {
      roof.seconds[way].push_back(team.time(roof.ways[way], weights));
    }
  };
  measure(read_);
  std::ranges::for_each(of_rows_, measure);
}

void Roofs::choose() {
  const auto choose = [](Roof& roof) {
    if (roof.ways.empty()) return;
    const auto best =
        std::ranges::min_element(roof.seconds, {}, [](const std::vector<double>& of) { return median(of); }) -
        roof.seconds.begin();
    roof.ways = {roof.ways[static_cast<std::size_t>(best)]};
    roof.seconds.assign(1, {});
  };
  choose(read_);
  std::ranges::for_each(of_rows_, choose);
}

bool Roofs::any_roofline() const {
  return std::ranges::any_of(of_rows_, [](const Roof& roof) { return !roof.ways.empty(); });
}

const std::vector<double>* Roofs::roofline_seconds(std::size_t row_count) const {
  const Roof& roof = of_rows_[row_count];
  return roof.ways.empty() ? nullptr : &roof.seconds.front();
}

}  // namespace specdec
