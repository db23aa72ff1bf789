/// What scoring K+1 rows costs beside scoring one, on one rank, the one-row pass beside a plain read of as many bytes, and each pass beside its roofline.
///
///   pass_bench [--model DIR] [--weights random] [--dtype bf16] [--backend cpu] [--threads 1] [--context 128] [--repeats 60] [--where] [--json F]
///
/// Method: all row counts take turns within each repeat, in a rotated order, so that drifts of a shared machine fall on all alike; a repeat's
/// figure is that of one pass after `context` committed tokens, rolled back afterwards. Printed are medians of the times and medians of the
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
  std::optional<double> read_gbps;
  bool where = false;
  std::string json;
};

/// One pass, whole and by kinds of operations.
struct MeasuredPass {
  double seconds = 0;
  std::vector<OperationCost> operations;
};

/// The one that took the median time.
const MeasuredPass& median_pass(std::vector<MeasuredPass>& passes) {
  const auto middle = passes.begin() + static_cast<std::ptrdiff_t>(passes.size() / 2);
  std::ranges::nth_element(passes, middle, {}, &MeasuredPass::seconds);
  return *middle;
}

/// Keeps the weights that the backend cpu packs, in order, for reading them in other ways.
class KeptWeights final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  const std::vector<Words>& weights() const { return weights_; }

  std::unique_ptr<PackedLinear> pack(const LinearSpec& spec) override {
    std::unique_ptr<PackedLinear> packed = ForwardingBackend::pack(spec);
    if (const auto* const host = dynamic_cast<const CpuPackedLinear*>(packed.get())) {
      weights_.push_back(words_of(host->panels(), host->bytes()));
    }
    return packed;
  }

 private:
  std::vector<Words> weights_;
};

/// Prints where a pass of `rows` rows went, `gbps` being what memory gives; the same as JSON.
nlohmann::json told_where(std::int64_t rows, const MeasuredPass& pass, double gbps) {
  fmt::print("\nwhere a pass of {} row{} goes\n{:<26} {:>5} {:>10} {:>9} {:>9} {:>8}\n", rows, rows == 1 ? "" : "s",
             "operation", "calls", "MB", "least ms", "ms", "of all");
  OperationCost rest{.name = "between operations", .seconds = pass.seconds};
  nlohmann::json operations = nlohmann::json::array();
  const auto line = [&](const OperationCost& cost) {
    const double least = cost.bytes / (gbps * 1e9);
    fmt::print("{:<26} {:>5} {:>10.3f} {:>9.4f} {:>9.4f} {:>6.1f} %\n", cost.name, cost.calls, cost.bytes * 1e-6,
               least * 1e3, cost.seconds * 1e3, 100 * cost.seconds / pass.seconds);
    operations.push_back({{"operation", cost.name},
                          {"calls", cost.calls},
                          {"bytes", cost.bytes},
                          {"least_ms", least * 1e3},
                          {"ms", cost.seconds * 1e3}});
  };
  for (const OperationCost& cost : pass.operations) {
    line(cost);
    rest.seconds -= cost.seconds;
  }
  line(rest);
  return operations;
}

void run(const Options& options) {
  SelfCommunicator self;
  const Isa isa = options.isa == "auto" ? detect_isa() : parse_isa(options.isa).value();
  std::unique_ptr<Backend> backend = make_backend({.name = options.backend, .isa = isa, .threads = options.threads});
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

  const std::vector<std::int64_t> row_counts{1, 2, 3, 5, 9, kMostRows};
  std::vector<std::vector<double>> seconds(row_counts.size());
  std::vector<std::vector<MeasuredPass>> passes(row_counts.size());
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
  const auto time_rows = [&](std::size_t which) {
    const auto rows = static_cast<std::size_t>(row_counts[which]);
    if (measured != nullptr) measured->reset();
    const double start = now_seconds();
    model.forward({scored.first(rows), std::span(position).first(rows), std::span(parent).first(rows)}, cache,
                  LogitRows::kAll, Stream{});
    backend->synchronize(Stream{});
    seconds[which].push_back(now_seconds() - start);
    if (measured != nullptr) passes[which].push_back({seconds[which].back(), measured->costs()});
    cache.commit_prefix(0);
  };
  constexpr int kWarmUp = 5;
  for (int repeat = -kWarmUp; repeat < options.repeats; ++repeat) {
    for (std::size_t i = 0; i < row_counts.size(); ++i) {
      time_rows((i + static_cast<std::size_t>(repeat + kWarmUp)) % row_counts.size());
    }
    if (reads) {
      RoofTeam team(options.threads);
      roofs.measure(team, kept->weights());
    }
    if (repeat == -1) {
      std::ranges::for_each(seconds, [](auto& s) { s.clear(); });
      std::ranges::for_each(passes, [](auto& p) { p.clear(); });
      if (reads) roofs.choose();
    }
  }

  const std::vector<double>& one = seconds.front();
  std::optional<double> read;
  std::optional<double> one_over_read;
  if (options.read_gbps) {
    read = static_cast<double>(bytes) / (*options.read_gbps * 1e9);
    one_over_read = median(one) / *read;
  } else if (reads) {
    read = median(roofs.read_seconds());
    one_over_read = median_ratio(one, roofs.read_seconds());
  }
  nlohmann::json result{{"model", options.model},
                        {"backend", backend->description()},
                        {"dtype", options.dtype},
                        {"bytes", bytes},
                        {"weights", options.random ? label_of(choice) : "checkpoint"},
                        {"plain_read_ms", nullable(read, 1e3)},
                        {"one_row_over_plain_read", nullable(one_over_read)},
                        {"rows", nlohmann::json::array()}};
  fmt::print("{}: {}, {} after {} tokens of context{}{}\n", std::filesystem::path(options.model).filename().string(),
             backend->description(), options.dtype, options.context, options.random ? ", " : "", label_of(choice));
  const bool has_roofline = reads && roofs.any_roofline();
  fmt::print("{:>5} {:>10} {:>12}{}\n", "rows", "ms", "over 1 row", has_roofline ? "  roofline ms  over it" : "");
  for (std::size_t i = 0; i < row_counts.size(); ++i) {
    const double time = median(seconds[i]);
    const double over_one = median_ratio(seconds[i], one);
    std::optional<double> roofline;
    std::optional<double> over_roofline;
    if (const std::vector<double>* const of_rows = has_roofline ? roofs.roofline_seconds(i) : nullptr) {
      roofline = median(*of_rows);
      over_roofline = median_ratio(seconds[i], *of_rows);
    }
    fmt::print("{:>5} {:>10.3f} {:>12.2f}{}\n", row_counts[i], time * 1e3, over_one,
               roofline ? fmt::format(" {:>12.3f} {:>8.3f}", *roofline * 1e3, *over_roofline) : "");
    result["rows"].push_back({{"rows", row_counts[i]},
                              {"ms", time * 1e3},
                              {"over_one_row", over_one},
                              {"roofline_ms", nullable(roofline, 1e3)},
                              {"over_roofline", nullable(over_roofline)}});
  }
  if (read) {
    fmt::print("plain read of {:.1f} MB: {:.3f} ms ({:.1f} GB/s); one row over it: {:.2f}\n",
               static_cast<double>(bytes) * 1e-6, *read * 1e3, static_cast<double>(bytes) / *read * 1e-9,
               *one_over_read);
  }
  for (std::size_t i = 0; measured != nullptr && i < row_counts.size(); ++i) {
    result["rows"][i]["operations"] =
        told_where(row_counts[i], median_pass(passes[i]), static_cast<double>(bytes) / read.value() * 1e-9);
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
