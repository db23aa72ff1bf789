/// The two roofs of this machine, for other benchmarks to be held against: how fast memory is read, and how fast products are added up, by so
/// many threads at once.
///
///   roof_bench [--threads 1,2] [--megabytes 2048] [--repeats 7] [--json F]
///
/// Method: a thread a core, each with its own part of a buffer that no cache holds, on huge pages where the kernel gives them. A pass begins when all
/// threads are there and ends with the last of them. Reading sums words with plain vector loads in several ways: how wide, how many streams at once,
/// with or without prefetches; adding multiplies what is in registers, so that nothing but the units bounds it: fp32, and where the machine has
/// AVX-512 BF16 bf16 pairs into fp32, too, which not every such machine does faster. All ways and thread counts take turns within each repeat. A way's figure is its median; a roof is the best way's.
#include <fmt/format.h>
#include <immintrin.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/aligned_array.h"
#include "backend/cpu/thread_pool.h"
#include "backend/error.h"
#include "parallel/latency.h"
#include "runtime/clock.h"
#include "runtime/whole_file.h"

namespace specdec {
namespace {

using Words = std::span<const std::uint64_t>;

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

struct Way {
  std::string name;
  std::function<void(Words)> pass;  ///< of one thread over its part
  double flops = 0;                 ///< of one thread; 0: it reads its part
};

std::vector<Way> ways_of_this_machine() {
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  std::vector<Way> ways{{"avx2, 1 stream", read_avx2<1, false>},
                        {"avx2, 4 streams", read_avx2<4, false>},
                        {"avx2, 1 stream, prefetch", read_avx2<1, true>}};
  if (avx512) {
    ways.push_back({"avx512, 1 stream", read_avx512<1, false>});
    ways.push_back({"avx512, 4 streams", read_avx512<4, false>});
    ways.push_back({"avx512, 1 stream, prefetch", read_avx512<1, true>});
    ways.push_back({"avx512, 4 streams, prefetch", read_avx512<4, true>});
  }
  const double adds = static_cast<double>(kProducts) * kAccumulators * 2;
  if (__builtin_cpu_supports("avx512bf16") != 0) {
    ways.push_back({"bf16, avx512_bf16", add_avx512<true>, adds * 32});
  }
  if (avx512) {
    ways.push_back({"fp32, avx512", add_avx512<false>, adds * 16});
  } else {
    ways.push_back({"fp32, avx2", add_fp32_avx2, adds * 8});
  }
  return ways;
}

/// Binds the calling thread to one of `cores`, where there are as many.
void bind_to(const std::vector<int>& cores, int thread) {
  if (static_cast<std::size_t>(thread) >= cores.size()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores[static_cast<std::size_t>(thread)], &set);
  sched_setaffinity(0, sizeof set, &set);
}

/// Threads on a core each. The caller is one of them, and gets its cores back.
class Team {
 public:
  explicit Team(int threads) : pool_(threads) {
    CPU_ZERO(&callers_);
    sched_getaffinity(0, sizeof callers_, &callers_);
    pool_.run([&, cores = own_cores()](int thread) { bind_to(cores, thread); });
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() { sched_setaffinity(0, sizeof callers_, &callers_); }

  int size() const { return pool_.size(); }

  /// Seconds of one pass, each thread over its part of the words.
  double time(const Way& way, Words words) {
    const std::size_t part = words.size() / static_cast<std::size_t>(size());
    pool_.run([](int) {});  // wakes them
    const double start = now_seconds();
    pool_.run([&](int thread) { way.pass(words.subspan(static_cast<std::size_t>(thread) * part, part)); });
    return now_seconds() - start;
  }

 private:
  ThreadPool pool_;
  cpu_set_t callers_;
};

/// Written once, so that its pages are there.
AlignedArray memory_of(std::size_t bytes) {
  try {
    return AlignedArray(bytes);
  } catch (const std::bad_alloc&) {
    throw_bad_input(fmt::format("--megabytes: found {}, expected what this machine has free", bytes >> 20));
  }
}

struct Options {
  std::vector<int> threads{1, 2};
  std::size_t megabytes = 2048;
  int repeats = 7;
  std::string json;
};

void run(const Options& options) {
  const AlignedArray memory = memory_of(options.megabytes << 20);
  const Words words(reinterpret_cast<const std::uint64_t*>(memory.data()), memory.bytes() / sizeof(std::uint64_t));
  const std::vector<Way> ways = ways_of_this_machine();
  // Of each thread count, of each way: what it did a second.
  std::vector<std::vector<std::vector<double>>> rates(options.threads.size(),
                                                      std::vector<std::vector<double>>(ways.size()));
  const auto bytes = static_cast<double>(words.size_bytes());
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    for (std::size_t turn = 0; turn < ways.size(); ++turn) {
      const std::size_t way = (turn + static_cast<std::size_t>(repeat)) % ways.size();
      for (std::size_t count = 0; count < options.threads.size(); ++count) {
        Team team(options.threads[count]);
        const double done = ways[way].flops > 0 ? ways[way].flops * team.size() : bytes;
        rates[count][way].push_back(done / team.time(ways[way], words) * 1e-9);
      }
    }
  }
  nlohmann::json result{{"bytes", bytes}, {"cores", own_cores().size()}, {"roofs", nlohmann::json::array()}};
  for (std::size_t count = 0; count < options.threads.size(); ++count) {
    nlohmann::json roof{{"threads", options.threads[count]}, {"read_GBps", 0.0}, {"GFLOPs", 0.0}};
    nlohmann::json all_ways = nlohmann::json::array();
    for (std::size_t way = 0; way < ways.size(); ++way) {
      const double rate = summarise(rates[count][way]).p50;
      const bool adds = ways[way].flops > 0;
      const char* const unit = adds ? "GFLOP/s" : "GB/s";
      all_ways.push_back({{"way", ways[way].name}, {"rate", rate}, {"unit", unit}});
      if (nlohmann::json& best = roof[adds ? "GFLOPs" : "read_GBps"]; rate > best.get<double>()) {
        best = rate;
        roof[adds ? "flops_by" : "read_by"] = ways[way].name;
      }
      fmt::print("{} thread{}, {:<30} {:>8.1f} {}\n", options.threads[count], options.threads[count] == 1 ? " " : "s",
                 ways[way].name, rate, unit);
    }
    roof["ways"] = std::move(all_ways);
    result["roofs"].push_back(std::move(roof));
  }
  if (!options.json.empty()) {
    write_whole_file(options.json, result.dump(2) + "\n", "--json");
  }
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  specdec::Options options;
  CLI::App app("How fast this machine reads memory and adds products");
  app.add_option("--threads", options.threads, "thread counts, each measured")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app.add_option("--megabytes", options.megabytes, "to read in a pass, by all threads together")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--repeats", options.repeats, "passes of each way")->check(CLI::Range(1, 100000));
  app.add_option("--json", options.json, "also write the figures here");
  CLI11_PARSE(app, argc, argv);
  try {
    specdec::run(options);
    return 0;
  } catch (const specdec::Error& error) {
    fmt::print(stderr, "roof_bench: error: {}\n", error.what());
    return specdec::exit_code(error.kind());
  }
}
