/// What scoring K+1 rows costs beside scoring one, on one rank, the one-row pass beside a plain read of as many bytes, and each pass beside its roofline.
///
///   pass_bench [--model DIR] [--weights random] [--dtype bf16] [--backend cpu] [--threads 1] [--context 128] [--repeats 60] [--where] [--json F]
///
/// Method: all row counts take turns within each repeat, in a rotated order, so that drifts of a shared machine fall on all alike; a repeat's
/// figure is that of one pass after `context` committed tokens, rolled back afterwards. Passes of one row that are not timed come right before each that is, for 10 ms, as passes
/// follow one another where text is decoded: its team is awake, and the caches have what passes leave in them. (One is not enough: while something else is measured,
/// neighbours on the chip fill the last cache.) Printed are medians of the times and medians of the
/// ratios of times of the same repeat, which a machine that changes its pace on the way changes less. The plain read
/// sums the very weights that the pass reads, on as many threads, in the same turns; of bf16 weights, where there is AVX-512, the roofline of so many rows
/// reads them too and adds as many products as the pass does, from registers (roofs.h): memory is not always equally quick. Each is the best of several
/// ways, chosen in the warm-up. With another backend than cpu the plain read is what --read-gbps says, and otherwise not there. On a device a pass ends when the
/// host knows that it is done.
///
/// --where says where a pass goes: each kind of operation with its calls, the bytes that it must move, the least time for them at the speed of the
/// plain read (or of --read-gbps), and what it took: of the repeat whose pass took the median time. The clock is read twice an operation, so that these passes
/// are a little longer.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/cpu/packed_linear.h"
#include "backend/error.h"
#include "backend/factory.h"
#include "backend/forwarding_backend.h"
#include "models/random_tensors.h"
#include "models/transformer.h"
#include "parallel/self_communicator.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/nullable.h"
#include "runtime/statistics.h"
#include "runtime/whole_file.h"
#include "tests/bench/measured_backend.h"
#include "tests/bench/places.h"
#include "tests/bench/roofs.h"

namespace specdec {
namespace {

struct Options {
  std::string model = SPECDEC_SOURCE_DIR "/assets/manpy-11m";
  std::string dtype = "bf16";
  bool random = false;
  std::string backend = "cpu";
  std::string isa = "auto";
  int threads = 1;
  std::int64_t context = 128;
  int repeats = 60;
  std::vector<std::int64_t> rows{1, 2, 3, 5, 9, kMostRows};
  std::optional<double> read_gbps;
  bool where = false;
  std::string json;
};

Isa isa_of(const Options& options) { return options.isa == "auto" ? detect_isa() : parse_isa(options.isa).value(); }

/// One pass, whole and by kinds of operations.
struct MeasuredPass {
  double seconds = 0;
  std::vector<OperationCost> operations;
};

/// The one that took the median time, which are not none.
MeasuredPass median_pass(std::vector<MeasuredPass> passes) {
  const auto middle = passes.begin() + static_cast<std::ptrdiff_t>(passes.size() / 2);
  std::ranges::nth_element(passes, middle, {}, &MeasuredPass::seconds);
  return std::move(*middle);
}

/// What was measured, repeat by repeat.
struct Measurements {
  std::vector<std::int64_t> row_counts;
  std::vector<std::vector<MeasuredPass>> passes;      ///< of each row count
  std::vector<double> read_seconds;                   ///< none where there is no plain read
  std::vector<double> fp32_rates;                     ///< multiply-adds a second of registers, for --where
  std::vector<std::vector<double>> roofline_seconds;  ///< of each row count, none where it has no roofline
  std::vector<std::vector<double>>
      line_seconds;  ///< from core to core, at several moments of each; none with one thread
};

/// One row first.
std::vector<std::int64_t> with_one(std::vector<std::int64_t> rows) {
  rows.push_back(1);
  std::ranges::sort(rows);
  const auto [first, last] = std::ranges::unique(rows);
  rows.erase(first, last);
  return rows;
}

std::vector<double> seconds_of(const std::vector<MeasuredPass>& passes) {
  std::vector<double> seconds(passes.size());
  std::ranges::transform(passes, seconds.begin(), &MeasuredPass::seconds);
  return seconds;
}

/// Keeps the weights that the backend cpu packs, in order, for reading them in other ways.
class KeptWeights final : public ObservingBackend {
 public:
  using ObservingBackend::ObservingBackend;

  const std::vector<Words>& weights() const { return weights_; }

  std::unique_ptr<PackedLinear> pack(const LinearSpec& spec) override {
    std::unique_ptr<PackedLinear> packed = ObservingBackend::pack(spec);
    if (const auto* const host = dynamic_cast<const CpuPackedLinear*>(packed.get())) {
      weights_.push_back(words_of(host->panels(), host->bytes()));
    }
    return packed;
  }

 private:
  std::vector<Words> weights_;
};

/// What no operation can be quicker than: it reads and writes its bytes at the memory's speed and multiplies at the units'.
struct Floors {
  double bytes_a_second = 0;
  double weight_bytes_a_second = 0;   ///< of products, at their roofline; 0 where they have none, as on tiles
  double multiply_adds_a_second = 0;  ///< in fp32; 0: not known

  double seconds(const OperationCost& cost) const {
    const double products = weight_bytes_a_second > 0 ? cost.weight_bytes / weight_bytes_a_second : 0;
    const double attention = multiply_adds_a_second > 0 ? cost.multiply_adds / multiply_adds_a_second : 0;
    return std::max({cost.bytes / bytes_a_second, products, attention});
  }
};

/// Prints where a pass of `rows` rows went; the same as JSON.
nlohmann::json told_where(std::int64_t rows, const MeasuredPass& pass, const Floors& floors) {
  fmt::print("\nwhere a pass of {} row{} goes\n{:<26} {:>5} {:>10} {:>9} {:>9} {:>8}\n", rows, rows == 1 ? "" : "s",
             "operation", "calls", "MB", "least ms", "ms", "of all");
  OperationCost rest{.name = "between operations", .seconds = pass.seconds};
  double least_of_all = 0;
  nlohmann::json operations = nlohmann::json::array();
  const auto line = [&](const OperationCost& cost) {
    const double least = floors.seconds(cost);
    fmt::print("{:<26} {:>5} {:>10.3f} {:>9.4f} {:>9.4f} {:>6.1f} %\n", cost.name, cost.calls, cost.bytes * 1e-6,
               least * 1e3, cost.seconds * 1e3, 100 * cost.seconds / pass.seconds);
    operations.push_back({{"operation", cost.name},
                          {"calls", cost.calls},
                          {"bytes", cost.bytes},
                          {"multiply_adds", cost.multiply_adds},
                          {"least_ms", least * 1e3},
                          {"ms", cost.seconds * 1e3}});
  };
  for (const OperationCost& cost : pass.operations) {
    line(cost);
    rest.seconds -= cost.seconds;
    least_of_all += floors.seconds(cost);
  }
  line(rest);
  fmt::print("all operations at their least: {:.3f} ms; the pass over it: {:.3f}\n", least_of_all * 1e3,
             pass.seconds / least_of_all);
  return operations;
}

double fp32_multiply_adds_a_second(RoofTeam& team) {
  static const std::vector<RoofWay> ways = ways_to_add();
  const auto way = std::ranges::find_if(ways, [](const RoofWay& of) { return of.name.starts_with("fp32"); });
  const Words nothing;
  return way->flops / 2 * team.size() / team.time(*way, {&nothing, 1});
}

/// Prints what the repeats of one place, or all, came to; the same as JSON.
nlohmann::json told(const Measurements& all, const std::vector<std::size_t>& repeats, std::size_t bytes,
                    const Options& options) {
  const std::vector<double> one = seconds_of(taken(all.passes.front(), repeats));
  const std::vector<double> read = taken(all.read_seconds, repeats);
  const double read_seconds = read.empty() ? 0 : median(read);
  nlohmann::json told{{"plain_read_ms", nlohmann::json()},
                      {"fp32_multiply_adds_a_second", nlohmann::json()},
                      {"one_row_over_plain_read", nlohmann::json()},
                      {"rows", nlohmann::json::array()}};
  const bool has_roofline = std::ranges::any_of(all.roofline_seconds, [](const auto& of) { return !of.empty(); });
  fmt::print("{:>5} {:>10} {:>12}{}\n", "rows", "ms", "over 1 row", has_roofline ? "  roofline ms  over it" : "");
  for (std::size_t i = 0; i < all.row_counts.size(); ++i) {
    const std::vector<double> seconds = seconds_of(taken(all.passes[i], repeats));
    const double time = median(seconds);
    const double over_one = median_ratio(seconds, one);
    std::optional<double> roofline;
    std::optional<double> over_roofline;
    if (const std::vector<double> of_rows = taken(all.roofline_seconds[i], repeats); !of_rows.empty()) {
      roofline = median(of_rows);
      over_roofline = median_ratio(seconds, of_rows);
    }
    fmt::print("{:>5} {:>10.3f} {:>12.2f}{}\n", all.row_counts[i], time * 1e3, over_one,
               roofline ? fmt::format(" {:>12.3f} {:>8.3f}", *roofline * 1e3, *over_roofline) : "");
    told["rows"].push_back({{"rows", all.row_counts[i]},
                            {"ms", time * 1e3},
                            {"over_one_row", over_one},
                            {"roofline_ms", nullable(roofline, 1e3)},
                            {"over_roofline", nullable(over_roofline)}});
  }
  std::optional<double> fp32_rate;
  if (const std::vector<double> rates = taken(all.fp32_rates, repeats); !rates.empty()) fp32_rate = median(rates);
  told["fp32_multiply_adds_a_second"] = nullable(fp32_rate);
  if (!read.empty()) {
    told["plain_read_ms"] = read_seconds * 1e3;
    told["one_row_over_plain_read"] = median_ratio(one, read);
    fmt::print("plain read of {:.1f} MB: {:.3f} ms ({:.1f} GB/s); one row over it: {:.2f}\n",
               static_cast<double>(bytes) * 1e-6, read_seconds * 1e3, static_cast<double>(bytes) / read_seconds * 1e-9,
               median_ratio(one, read));
  }
  for (std::size_t i = 0; options.where && i < all.row_counts.size(); ++i) {
    const auto weight_bytes = static_cast<double>(bytes);
    const std::vector<double> of_rows = taken(all.roofline_seconds[i], repeats);
    told["rows"][i]["operations"] =
        told_where(all.row_counts[i], median_pass(taken(all.passes[i], repeats)),
                   {.bytes_a_second = weight_bytes / read_seconds,
                    .weight_bytes_a_second =
                        of_rows.empty() || isa_of(options) >= Isa::kAmxBf16 ? 0 : weight_bytes / median(of_rows),
                    .multiply_adds_a_second = fp32_rate.value_or(0)});
  }
  return told;
}

void run(const Options& options) {
  SelfCommunicator self;
  std::unique_ptr<Backend> backend =
      make_backend({.name = options.backend, .isa = isa_of(options), .threads = options.threads});
  MeasuredBackend* measured = nullptr;
  if (options.where) {
    if (!backend->on_host()) {
      throw_bad_input(fmt::format(
          "--where: found the backend {}, expected one of the host: a device does its work later", options.backend));
    }
    auto measuring = std::make_unique<MeasuredBackend>(std::move(backend));
    measured = measuring.get();
    backend = std::move(measuring);
  }
  const KeptWeights* kept = nullptr;  // of a device there are none, and its fused operations are not to be taken apart
  if (backend->on_host()) {
    auto keeping = std::make_unique<KeptWeights>(std::move(backend));
    kept = keeping.get();
    backend = std::move(keeping);
  }
  const WeightsChoice choice{.random = options.random};
  const std::unique_ptr<TensorSource> weights = open_weights(options.model, choice);
  Transformer model(load_model_config(options.model), *weights, *backend, self,
                    {.dtype = dtype_named(options.dtype), .max_rows = kMostRows});
  if (options.context + kMostRows > model.config().context) {
    throw_bad_input(fmt::format("--context: found {}, expected at most {}: a pass of {} rows comes after it",
                                options.context, model.config().context - kMostRows, kMostRows));
  }
  KvCache cache = model.make_cache(options.context + kMostRows);
  std::vector<Token> tokens(static_cast<std::size_t>(options.context + kMostRows));
  std::ranges::generate(tokens, [token = std::int64_t{10}, size = model.config().vocabulary]() mutable {
    return static_cast<Token>(token++ % size);
  });
  const auto after_context = static_cast<std::size_t>(options.context);
  model.prefill(std::span(tokens).first(after_context), cache, Stream{});
  const std::span<const Token> scored = std::span(tokens).subspan(after_context);

  const std::vector<std::int64_t> row_counts = with_one(options.rows);
  Measurements all{.row_counts = row_counts, .passes = std::vector<std::vector<MeasuredPass>>(row_counts.size())};
  const bool reads = kept != nullptr && !kept->weights().empty() && !options.read_gbps;
  if (options.where && !reads && !options.read_gbps) {
    throw_bad_input(fmt::format("--where: found the backend {}, of which there is no plain read, expected --read-gbps",
                                options.backend));
  }
  const std::size_t bytes = model.weight_bytes();
  Roofs roofs(dtype_named(options.dtype), row_counts);

  std::vector<std::int32_t> position(kMostRows);
  std::iota(position.begin(), position.end(), static_cast<std::int32_t>(options.context));
  std::vector<std::int32_t> parent(kMostRows);
  std::iota(parent.begin(), parent.end(), -1);
  const auto take_pass = [&](std::size_t which) {
    const auto rows = static_cast<std::size_t>(row_counts[which]);
    const double start = now_seconds();
    model.forward({scored.first(rows), std::span(position).first(rows), std::span(parent).first(rows)}, cache,
                  LogitRows::kAll, Stream{});
    backend->synchronize(Stream{});
    const double seconds = now_seconds() - start;
    cache.commit_prefix(0);
    return seconds;
  };
  const auto warm_up = [&] {
    constexpr double kWarmSeconds = 10e-3;
    const double end = now_seconds() + kWarmSeconds;
    do {
      take_pass(0);
    } while (now_seconds() < end);
  };
  const auto time_rows = [&](std::size_t which) {
    if (measured != nullptr) measured->reset();
    MeasuredPass& pass = all.passes[which].emplace_back(take_pass(which));
    if (measured != nullptr) pass.operations = measured->costs();
  };
  const bool has_distance = backend->on_host() && options.threads > 1;
  constexpr int kWarmUp = 5;
  for (int repeat = -kWarmUp; repeat < options.repeats; ++repeat) {
    std::vector<double> lines;
    const auto measure_line = [&] {
      if (has_distance) lines.push_back(RoofTeam(options.threads).line_seconds());
    };
    for (std::size_t i = 0; i < row_counts.size(); ++i) {
      measure_line();
      warm_up();
      time_rows((i + static_cast<std::size_t>(repeat + kWarmUp)) % row_counts.size());
    }
    measure_line();
    if (reads) {
      RoofTeam team(options.threads);
      roofs.measure(team, kept->weights());
      if (options.where) all.fp32_rates.push_back(fp32_multiply_adds_a_second(team));
      if (has_distance) lines.push_back(team.line_seconds());
    }
    if (has_distance) all.line_seconds.push_back(std::move(lines));
    if (repeat == -1) {
      std::ranges::for_each(all.passes, [](auto& p) { p.clear(); });
      all.line_seconds.clear();
      all.fp32_rates.clear();
      if (reads) roofs.choose();
    }
  }
  if (options.read_gbps) {
    all.read_seconds.assign(static_cast<std::size_t>(options.repeats),
                            static_cast<double>(bytes) / (*options.read_gbps * 1e9));
  } else if (reads) {
    all.read_seconds = roofs.read_seconds();
  }
  for (std::size_t i = 0; i < row_counts.size(); ++i) {
    const std::vector<double>* const of_rows = reads ? roofs.roofline_seconds(i) : nullptr;
    all.roofline_seconds.push_back(of_rows != nullptr ? *of_rows : std::vector<double>());
  }

  nlohmann::json result{{"model", options.model},
                        {"backend", backend->description()},
                        {"dtype", options.dtype},
                        {"bytes", bytes},
                        {"weights", options.random ? label_of(choice) : "checkpoint"},
                        {"places", nlohmann::json::array()}};
  fmt::print("{}: {}, {} after {} tokens of context{}{}\n", std::filesystem::path(options.model).filename().string(),
             backend->description(), options.dtype, options.context, options.random ? ", " : "", label_of(choice));
  std::vector<std::size_t> repeats(static_cast<std::size_t>(options.repeats));
  std::iota(repeats.begin(), repeats.end(), std::size_t{0});
  result.update(told(all, repeats, bytes, options));
  for (const Place& place : places_of(all.line_seconds)) {
    const std::size_t count = place.repeats.size();
    fmt::print("{}from core to core a line takes {:.0f} to {:.0f} ns in {} of {} repeats\n",
               count < repeats.size() ? "\n" : "", place.least_seconds * 1e9, place.most_seconds * 1e9, count,
               repeats.size());
    nlohmann::json figures{{"line_ns", {place.least_seconds * 1e9, place.most_seconds * 1e9}}, {"repeats", count}};
    if (count < repeats.size()) figures.update(told(all, place.repeats, bytes, options));
    result["places"].push_back(std::move(figures));
  }
  if (!options.json.empty()) {
    write_whole_file(options.json, result.dump(2) + "\n", "--json");
  }
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  specdec::Options options;
  CLI::App app("Cost of scoring several rows over one, on one rank");
  app.add_option("--model", options.model, "Hugging Face directory");
  app.add_option_function<std::string>(
         "--weights", [&](const std::string& source) { options.random = source == "random"; },
         "checkpoint, or random: --model needs a config.json only")
      ->check(CLI::IsMember({"checkpoint", "random"}));
  app.add_option("--dtype", options.dtype, "bf16, f16, f32 or int8")
      ->check(CLI::IsMember(specdec::weight_type_names()));
  app.add_option("--backend", options.backend, "cpu, reference or cuda");
  app.add_option("--read-gbps", options.read_gbps,
                 "the memory's bandwidth, measured elsewhere: in place of the plain read and of rooflines")
      ->check(CLI::PositiveNumber);
  app.add_option("--isa", options.isa, "auto, scalar, avx2, avx512, avx512_bf16, amx_bf16")
      ->check(CLI::IsMember({"auto", "scalar", "avx2", "avx512", "avx512_bf16", "amx_bf16"}));
  app.add_option("--threads", options.threads, "compute threads");
  app.add_option("--context", options.context, "tokens committed before each pass")->check(CLI::Range(1, 100000));
  app.add_option("--rows", options.rows, "row counts beside one")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, specdec::kMostRows));
  app.add_option("--repeats", options.repeats, "measured passes per row count")->check(CLI::Range(1, 100000));
  app.add_flag("--where", options.where, "also say where a pass goes, operation by operation");
  app.add_option("--json", options.json, "also write the figures here");
  CLI11_PARSE(app, argc, argv);
  try {
    specdec::run(options);
    return 0;
  } catch (const specdec::Error& error) {
    fmt::print(stderr, "pass_bench: error: {}\n", error.what());
    return specdec::exit_code(error.kind());
  }
}
