#include "runtime/bench_cli.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <limits>

#include "backend/error.h"
#include "models/limits.h"
#include "parallel/transports.h"
#include "runtime/byte_sizes.h"
#include "runtime/flags.h"
#include "runtime/transport_choice.h"
#include "runtime/version.h"

namespace specdec {
namespace {

constexpr const char* kBenchProgram = "allreduce_bench";
constexpr const char* kBenchAbout =
    "Times all-reduces of this program's transports beside plain MPI_Allreduce, verifies every sum, and says where "
    "the\n"
    "time of a token goes (--decode).\n\n"
    "Before each iteration every rank writes its payload and waits for a common barrier; an iteration's time is the\n"
    "largest of all ranks' own, from the barrier to the result (OSU's osu_allreduce has a barrier between iterations\n"
    "too; nccl-tests times them back to back, as --decode with gap_us=0 does). Transports take turns, A B B A.\n"
    "algbw = bytes / P50, busbw = algbw * 2 (n - 1) / n, GB = 10^9 bytes, as nccl-tests define them.\n";
constexpr const char* kBenchExamples =
    "Examples:\n"
    "  mpirun -np 2 allreduce_bench --bytes 1K..1M\n"
    "  mpirun -np 8 allreduce_bench --d-model 8192 --tokens 1,2,4,5,8,16 --dtype bf16,fp32\n"
    "  mpirun -np 4 allreduce_bench --bytes 16K,256K --transport shm,mpi,hier --csv curve.csv\n"
    "  mpirun -np 2 allreduce_bench --decode layers=32,d_model=4096,vocab=32000,gap_us=100\n"
    "  mpirun -np 2 allreduce_bench --decode assets/manpy-11m --tokens 1,5\n"
    "Exit codes: 0 done; 1 wrong sums or a bug; 2 bad input; 3 a rank was lost; 128 + signal interrupted.";

constexpr std::int64_t kMostTokens = 65536;

constexpr std::size_t kMostElements = std::numeric_limits<int>::max();  // MPI counts them in an int
constexpr const char* kLargest = "at most 4G bytes and 2147483647 elements";

bool is_too_large(std::size_t bytes, DType dtype) {
  return bytes > kLargestPayload || bytes / size_of(dtype) > kMostElements;
}

/// As they were written.
struct Flags {
  std::string transports = "auto";
  std::string bytes;
  std::string tokens;
  std::string d_model;
  std::string dtypes = "fp32";
  std::string decode;
  int iterations = 0;
  int warmup = 0;
};

void require_name(const CLI::App& app, const char* flag, const std::string& value) {
  if (app.count(flag) > 0 && value.empty()) {
    throw_bad_input(fmt::format("{}: found nothing, expected {}", flag,
                                std::string_view(flag) == "--json" || std::string_view(flag) == "--csv"
                                    ? "the name of a file"
                                    : "a value (--help)"));
  }
}

BenchPayload payload_of_bytes(std::size_t bytes, DType dtype) {
  if (bytes % size_of(dtype) != 0) {
    throw_bad_input(fmt::format("--bytes: found {}, expected a multiple of {}, the size of {}", bytes, size_of(dtype),
                                bench_name(dtype)));
  }
  if (is_too_large(bytes, dtype)) {
    throw_bad_input(fmt::format("--bytes: found {} of {}, expected {}", bytes, bench_name(dtype), kLargest));
  }
  return {dtype, bytes, {}};
}

BenchPayload payload_of_rows(std::int64_t rows, std::int64_t width, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(rows * width) * size_of(dtype);
  if (is_too_large(bytes, dtype)) {
    throw_bad_input(fmt::format("--tokens: found {} rows of {} elements of {}, expected {}", rows, width,
                                bench_name(dtype), kLargest));
  }
  return {dtype, bytes, rows};
}

std::vector<BenchPayload> payloads_of_bytes(const Flags& flags, const std::vector<DType>& dtypes) {
  std::vector<BenchPayload> payloads;
  const std::vector<std::size_t> sizes = parse_byte_sizes(flags.bytes.empty() ? "1K..64M" : flags.bytes, "--bytes");
  for (const DType dtype : dtypes) {
    for (const std::size_t bytes : sizes) payloads.push_back(payload_of_bytes(bytes, dtype));
  }
  return payloads;
}

std::vector<BenchPayload> payloads_of_tokens(const Flags& flags, const BenchCommand& command) {
  const std::vector<std::int64_t> widths = parse_counts(flags.d_model, kLargestWidth, "--d-model");
  std::vector<BenchPayload> payloads;
  for (const DType dtype : command.dtypes) {
    for (const std::int64_t width : widths) {
      for (const std::int64_t rows : command.tokens) payloads.push_back(payload_of_rows(rows, width, dtype));
    }
  }
  return payloads;
}

/// What the flags mean together.
void interpret(const CLI::App& app, const Flags& flags, BenchCommand& command) {
  const bool by_tokens = app.count("--d-model") > 0;
  const bool decode = app.count("--decode") > 0;
  const auto exclude = [&](bool both, const char* a, const char* b) {
    if (both) throw_bad_input(fmt::format("command line: found both {} and {}, expected one of them", a, b));
  };
  // NaN is inside every range.
  if (std::isnan(command.effort.seconds)) throw_bad_input("--seconds: found nan, expected seconds from 0.001 to 3600");
  if (std::isnan(command.deadline)) throw_bad_input("--deadline: found nan, expected seconds from 0.1 to 86400");
  exclude(by_tokens && app.count("--bytes") > 0, "--d-model", "--bytes");
  exclude(decode && by_tokens, "--decode", "--d-model");
  exclude(decode && app.count("--bytes") > 0, "--decode", "--bytes");
  if (app.count("--tokens") > 0 && !by_tokens && !decode) {
    throw_bad_input("--tokens: found without --d-model, expected the width of a row, such as --d-model 8192");
  }
  command.transports = parse_words(flags.transports, transport_names(), "--transport");
  for (const std::string& transport : command.transports) {
    if (is_on_device(transport) && (decode || command.interconnect != kNativeInterconnect)) {
      throw_bad_input(fmt::format(
          "--transport: found {} with {}, expected transports of the host, where every all-reduce is waited for",
          transport, decode ? "--decode" : "--interconnect"));
    }
  }
  for (const std::string& name : parse_words(flags.dtypes, {"fp32", "bf16"}, "--dtype")) {
    command.dtypes.push_back(name == "fp32" ? DType::kF32 : DType::kBF16);
  }
  const std::string tokens = !flags.tokens.empty() ? flags.tokens : decode ? "1" : "1,2,4,5,8,16";
  command.tokens = parse_counts(tokens, kMostTokens, "--tokens");
  if (decode) {
    command.decode = parse_model_shape(flags.decode, "--decode");
    for (const DType dtype : command.dtypes) {
      for (const std::int64_t rows : command.tokens) payload_of_rows(rows, command.decode->d_model, dtype);
    }
  } else {
    command.payloads = by_tokens ? payloads_of_tokens(flags, command) : payloads_of_bytes(flags, command.dtypes);
  }
  if (app.count("--iterations") > 0) command.effort.iterations = flags.iterations;
  if (app.count("--warmup") > 0) command.effort.warmup = flags.warmup;
}

}  // namespace

std::string bench_name(DType dtype) { return dtype == DType::kF32 ? "fp32" : std::string(name_of(dtype)); }

BenchCommand parse_bench_command(int argc, const char* const* argv) {
  BenchCommand command;
  Flags flags;
  std::string json;
  std::string csv;
  CLI::App app{kBenchAbout, kBenchProgram};
  app.footer(kBenchExamples);
  app.add_option("--transport", flags.transports,
                 fmt::format("Some of {}; MPI_Allreduce is always there", fmt::join(transport_names(), ",")))
      ->type_name("LIST")
      ->capture_default_str();
  app.add_option("--bytes", flags.bytes, "Payloads: 4096, 1K,16K,1M or 1K..64M, which doubles [1K..64M]")
      ->type_name("LIST");
  app.add_option("--d-model", flags.d_model, "Payloads of --tokens rows of this many elements each")->type_name("LIST");
  app.add_option("--tokens", flags.tokens, "Rows of an all-reduce [1,2,4,5,8,16; with --decode 1]")->type_name("LIST");
  app.add_option("--dtype", flags.dtypes, "fp32, bf16 or both")->type_name("LIST")->capture_default_str();
  app.add_option("--decode", flags.decode,
                 "Time a token of a model instead: its directory, or layers=32,d_model=4096[,vocab=32000][,gap_us=120]")
      ->type_name("SHAPE");
  app.add_option("--interconnect", command.interconnect, "Model this one on top of each transport: a preset or a file")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--iterations", flags.iterations, "Timed, of each transport and size [what fits into --seconds]")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  app.add_option("--warmup", flags.warmup, "Untimed before [a tenth of the time]")
      ->check(CLI::Range(0, 1'000'000))
      ->type_name("N");
  app.add_option("--seconds", command.effort.seconds, "Time for each transport and size; at least 10 iterations")
      ->check(CLI::Range(0.001, 3600.0))
      ->type_name("S")
      ->capture_default_str();
  app.add_option("--json", json, "Write all figures and what they were made on")->type_name("OUT");
  app.add_option("--csv", csv, "Write the rows")->type_name("OUT");
  app.add_option("--deadline", command.deadline, "Seconds without progress of a rank after which the job ends")
      ->check(CLI::Range(0.1, 86400.0))
      ->type_name("S")
      ->capture_default_str();
  app.add_flag("--share-gpus", command.share_gpus, "More ranks of a host than it has GPUs take them in turn");
  app.set_version_flag(
      "--version", [] { return version_text(kBenchProgram); }, "Print the version and exit");
  command.print = parse_flags(app, argc, argv);
  if (command.print) return command;
  require_name(app, "--json", json);
  require_name(app, "--csv", csv);
  require_name(app, "--decode", flags.decode);
  require_name(app, "--interconnect", command.interconnect);
  require_name(app, "--bytes", flags.bytes);
  require_name(app, "--tokens", flags.tokens);
  command.json = json;
  command.csv = csv;
  interpret(app, flags, command);
  return command;
}

}  // namespace specdec
