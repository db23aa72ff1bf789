/// The two roofs of this machine, for other benchmarks to be held against: how fast memory is read, and how fast products are added up, by so
/// many threads at once.
///
///   roof_bench [--threads 1,2] [--megabytes 2048] [--repeats 7] [--json F]
///
/// Method: a thread a core, each with its own part of every piece of a buffer that no cache holds, on huge pages where the kernel gives them. A pass begins when all
/// threads are there and ends with the last of them. Reading sums words with plain vector loads in several ways: how wide, how many streams at once,
/// with or without prefetches; adding multiplies what is in registers, so that nothing but the units bounds it: fp32, and where the machine has
/// AVX-512 BF16 bf16 pairs into fp32, too, which not every such machine does faster. All ways and thread counts take turns within each repeat. A way's figure is its median; a roof is the best way's.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
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
#include "runtime/whole_file.h"
#include "tests/bench/roofs.h"

namespace specdec {
namespace {

/// Written once, so that its pages are there.
AlignedArray memory_of(std::size_t bytes) {
  try {
    return AlignedArray(bytes);
  } catch (const std::bad_alloc&) {
    throw_bad_input(fmt::format("--megabytes: found {}, expected what this machine has free", bytes >> 20));
  }
}

/// As the matrices of a model lie: one piece of 23 MB after another, of a prime number of lines, so that streams are never a power of two apart, where the memory has them
/// wait for each other.
std::vector<Words> pieces_of(Words words) {
  constexpr std::size_t kPiece = 360'007 * std::size_t{8};
  std::vector<Words> pieces;
  for (std::size_t begin = 0; begin < words.size(); begin += kPiece) {
    pieces.push_back(words.subspan(begin, std::min(kPiece, words.size() - begin)));
  }
  return pieces;
}

struct Options {
  std::vector<int> threads{1, 2};
  std::size_t megabytes = 2048;
  int repeats = 7;
  std::string json;
};

void run(const Options& options) {
  const AlignedArray memory = memory_of(options.megabytes << 20);
  const Words words = words_of(memory.data(), memory.bytes());
  const std::vector<Words> pieces = pieces_of(words);
  std::vector<RoofWay> ways = ways_to_read();
  std::ranges::move(ways_to_add(), std::back_inserter(ways));
  // Of each thread count, of each way: what it did a second.
  std::vector<std::vector<std::vector<double>>> rates(options.threads.size(),
                                                      std::vector<std::vector<double>>(ways.size()));
  const auto bytes = static_cast<double>(memory.bytes());
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    for (std::size_t turn = 0; turn < ways.size(); ++turn) {
      const std::size_t way = (turn + static_cast<std::size_t>(repeat)) % ways.size();
      for (std::size_t count = 0; count < options.threads.size(); ++count) {
        RoofTeam team(options.threads[count]);
        const bool adds = ways[way].flops > 0;
        const double seconds = team.time(ways[way], adds ? std::span(&words, 1) : std::span(pieces));
        rates[count][way].push_back((adds ? ways[way].flops * team.size() : bytes) / seconds * 1e-9);
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
