// What a pass over a model's matrices costs for 1 to 16 rows, as ratios measured in one run.
//
// Method: the matrices of a whole model are packed; a pass multiplies by each once, in order, on one activation, as a forward
// pass does, so weights come from where a forward pass finds them (L3 for the shipped model, DRAM for the large shape). Passes of
// all row counts, a plain read of the same weights and their rooflines (roofs.h) take turns within a repetition, so that a change of clock or a busy
// neighbour falls on all alike, and so do other types of weights (--beside, as often as there are others); the table shows medians over repetitions, of times and of ratios within one. "/ 1 row" is the paper's cost of scoring; "/ read"
// compares with adding up the same bytes with plain vector loads, "/ roofline" with as many products besides, from registers. Ratios are comparable between machines, times are not.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/matmul.h"
#include "backend/cpu/matmul_kernel.h"
#include "runtime/statistics.h"
#include "tests/bench/places.h"
#include "tests/bench/roofs.h"

namespace specdec {
namespace {

struct Shape {
  std::int64_t out;
  std::int64_t in;
  std::vector<Range> slices;
};

/// 16 slices of [0, units * unit) on borders of whole units.
std::vector<Range> canonical_slices(std::int64_t units, std::int64_t unit) {
  std::vector<Range> slices;
  for (std::int64_t i = 0; i < 16; ++i) {
    slices.push_back({units * i / 16 * unit, units * (i + 1) / 16 * unit});
  }
  return slices;
}

std::vector<Shape> llama_like(std::int64_t layers, std::int64_t width, std::int64_t heads, std::int64_t feed_forward,
                              std::int64_t vocabulary) {
  std::vector<Shape> shapes;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    shapes.push_back({3 * width, width, {{0, width}}});
    shapes.push_back({width, width, canonical_slices(heads, width / heads)});
    shapes.push_back({2 * feed_forward, width, {{0, width}}});
    shapes.push_back({width, feed_forward, canonical_slices(feed_forward / 32, 32)});
  }
  shapes.push_back({vocabulary, width, {{0, width}}});
  return shapes;
}

class Model {
 public:
  Model(const std::vector<Shape>& shapes, DType dtype, const MatmulKernel& kernel, int threads) {
    std::int64_t widest = 0;
    std::mt19937 generator(1);
    std::uniform_real_distribution<float> uniform(-0.1F, 0.1F);
    for (const Shape& shape : shapes) {
      std::vector<float> values(static_cast<std::size_t>(shape.out * shape.in));
      // A short period keeps the set-up quick; the kernels' time does not depend on values.
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = i < 4096 ? uniform(generator) : values[i - 4096];
      }
      const WeightView view = {
          reinterpret_cast<const std::byte*>(values.data()), DType::kF32, shape.out, shape.in, shape.in, 1};
      weights_.push_back(std::make_unique<CpuPackedLinear>(LinearSpec{{view}, shape.slices, dtype}, kernel));
      scratch_.reserve(*weights_.back(), threads);
      widest = std::max({widest, shape.out, shape.in});
    }
    x_.assign(static_cast<std::size_t>(widest * kMostRows), 0.5F);
    y_.assign(x_.size(), 0.0F);
  }

  static constexpr std::int64_t kMostRows = 64;

  double megabytes() const {
    std::size_t bytes = 0;
    for (const auto& weight : weights_) {
      bytes += weight->bytes();
    }
    return static_cast<double>(bytes) / 1e6;
  }

  void pass(std::int64_t rows, ThreadPool& pool) {
    for (const auto& weight : weights_) {
      const std::int64_t in = weight->in_features();
      const std::int64_t out = weight->out_features();
      matmul(*weight, {x_.data(), rows, in, in}, {y_.data(), rows, out, out}, scratch_, pool);
    }
  }

  /// Where the weights lie, matrix by matrix.
  std::vector<Words> words() const {
    std::vector<Words> words;
    for (const auto& weight : weights_) {
      words.push_back(words_of(weight->panels(), weight->bytes()));
    }
    return words;
  }

 private:
  std::vector<std::unique_ptr<CpuPackedLinear>> weights_;
  MatmulScratch scratch_;
  std::vector<float> x_;
  std::vector<float> y_;
};

double seconds_of(auto&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Subject {
  std::string name;
  DType dtype;
  const MatmulKernel* kernel;
};

void report(const std::string& name, const std::vector<Shape>& shapes, const std::vector<Subject>& subjects,
            const std::vector<std::int64_t>& row_counts, ThreadPool& pool, int repetitions) {
  std::vector<std::unique_ptr<Model>> models;
  for (const Subject& subject : subjects) {
    models.push_back(std::make_unique<Model>(shapes, subject.dtype, *subject.kernel, pool.size()));
  }
  std::vector<std::vector<std::vector<double>>> seconds(models.size());
  std::vector<Roofs> roofs;
  for (std::size_t m = 0; m < models.size(); ++m) {
    seconds[m].resize(row_counts.size());
    roofs.emplace_back(subjects[m].dtype, row_counts);
  }
  std::vector<std::vector<double>> line_seconds;  // before and after all models' passes of a row count
  constexpr int kWarmUp = 3;
  for (int repetition = -kWarmUp; repetition < repetitions; ++repetition) {
    for (std::size_t i = 0; i < row_counts.size(); ++i) {
      const double before = RoofTeam(pool.size()).line_seconds();
      for (std::size_t m = 0; m < models.size(); ++m) {
        const double time = seconds_of([&] { models[m]->pass(row_counts[i], pool); });
        if (repetition >= 0) {
          seconds[m][i].push_back(time);
        }
      }
      if (repetition >= 0) line_seconds.push_back({before, RoofTeam(pool.size()).line_seconds()});
    }
    RoofTeam team(pool.size());
    for (std::size_t m = 0; m < models.size(); ++m) {
      roofs[m].measure(team, models[m]->words());
      if (repetition == -1) {
        roofs[m].choose();
      }
    }
  }
  for (std::size_t m = 0; m < models.size(); ++m) {
    const std::vector<double>& reads = roofs[m].read_seconds();
    const double read = median(reads) * 1e3;
    fmt::print("\n{}, {}, {:.1f} MB; plain read {:.3f} ms, {:.1f} GB/s\n", name, subjects[m].name,
               models[m]->megabytes(), read, models[m]->megabytes() / read);
    const std::string beside = fmt::format("/ {}", subjects.front().name);
    const bool has_roofline = roofs[m].any_roofline();
    fmt::print("{:>5} {:>10} {:>9} {:>9}{}{}\n", "rows", "ms", "/ 1 row", "/ read",
               has_roofline ? fmt::format(" {:>10}", "/ roofline") : "", m > 0 ? fmt::format(" {:>9}", beside) : "");
    for (std::size_t i = 0; i < row_counts.size(); ++i) {
      const std::vector<double>& of_rows = seconds[m][i];
      const std::vector<double>* const roofline = roofs[m].roofline_seconds(i);
      const std::string over_roofline =
          roofline != nullptr ? fmt::format("{:.3f}", median_ratio(of_rows, *roofline)) : "-";
      fmt::print("{:>5} {:>10.3f} {:>9.2f} {:>9.2f}{}{}\n", row_counts[i], median(of_rows) * 1e3,
                 median_ratio(of_rows, seconds[m].front()), median_ratio(of_rows, reads),
                 has_roofline ? fmt::format(" {:>10}", over_roofline) : "",
                 m > 0 ? fmt::format(" {:>9.2f}", median_ratio(of_rows, seconds.front()[i])) : "");
    }
  }
  if (pool.size() == 1) return;
  for (const Place& place : places_of(line_seconds)) {
    fmt::print("\nwhere a line takes {:.0f} to {:.0f} ns from core to core\n{:>5} {:>6} {:>10}",
               place.least_seconds * 1e9, place.most_seconds * 1e9, "rows", "times", "ms");
    for (const Subject& subject : subjects | std::views::drop(1))
      fmt::print("  {} / {}", subject.name, subjects.front().name);
    fmt::print("\n");
    for (std::size_t i = 0; i < row_counts.size(); ++i) {
      std::vector<std::size_t> repetitions_there;
      for (const std::size_t moment : place.repeats) {
        if (moment % row_counts.size() == i) repetitions_there.push_back(moment / row_counts.size());
      }
      if (repetitions_there.empty()) continue;
      const std::vector<double> first = taken(seconds.front()[i], repetitions_there);
      fmt::print("{:>5} {:>6} {:>10.3f}", row_counts[i], first.size(), median(first) * 1e3);
      for (std::size_t m = 1; m < models.size(); ++m) {
        const int width = static_cast<int>(subjects[m].name.size() + subjects.front().name.size() + 5);
        fmt::print("{:>{}.3f}", median_ratio(taken(seconds[m][i], repetitions_there), first), width);
      }
      fmt::print("\n");
    }
  }
}

/// The types of weights, each with the kernel that is chosen for it, and by name those of AVX-512 between which the processor decides.
std::vector<Subject> subjects_of(Isa isa) {
  std::vector<Subject> subjects;
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kInt8}) {
    subjects.push_back({std::string(name_of(dtype)), dtype, &matmul_kernel(isa, dtype)});
  }
  if (isa == Isa::kAvx512Bf16) {
    subjects.push_back({"bf16-widened", DType::kBF16, &kMatmulAvx512Bf16});
    subjects.push_back({"bf16-vdpbf16ps", DType::kBF16, &kMatmulVdpbf16});
    subjects.push_back({"bf16-vdpbf16ps-one-stream", DType::kBF16, &kMatmulVdpbf16OneStream});
  }
  if (isa >= Isa::kAvx512) {
    subjects.push_back({"int8-maddubs", DType::kInt8, &kMatmulAvx512Int8});
    if (has_avx512_vnni()) {
      subjects.push_back({"int8-vnni", DType::kInt8, &kMatmulVnniInt8});
      subjects.push_back({"int8-vnni-two-steps", DType::kInt8, &kMatmulVnniInt8TwoSteps});
    }
    if (isa >= Isa::kAmxBf16 && has_amx_int8()) subjects.push_back({"int8-amx", DType::kInt8, &kMatmulAmxInt8});
  }
  return subjects;
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  using namespace specdec;
  CLI::App app("Time of a pass over a model's matrices for 1 to 64 rows, in ratios");
  std::string isa_name(name_of(detect_isa()));
  std::string weights = "bf16";
  std::vector<std::string> beside;
  std::string shapes = "both";
  std::vector<std::int64_t> rows{1, 2, 3, 4, 5, 8, 9, 12, 16, 64};
  int threads = 1;
  int repetitions = 15;
  app.add_option("--isa", isa_name, "scalar, avx2, avx512, avx512_bf16 or amx_bf16")->capture_default_str();
  app.add_option("--dtype", weights,
                 "type of the weights: bf16, f32 or int8; by name with avx512_bf16 bf16-widened, bf16-vdpbf16ps or "
                 "bf16-vdpbf16ps-one-stream, with AVX-512 int8-maddubs, int8-vnni or "
                 "int8-vnni-two-steps, with AMX int8-amx")
      ->capture_default_str();
  app.add_option("--beside", beside, "others, which take turns with it");
  app.add_option("--shapes", shapes, "which model")
      ->check(CLI::IsMember({"shipped", "large", "both"}))
      ->capture_default_str();
  app.add_option("--rows", rows, "row counts, the first of which others are compared with")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, Model::kMostRows))
      ->capture_default_str();
  app.add_option("--threads", threads, "threads")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--repetitions", repetitions, "repetitions")->check(CLI::Range(1, 10000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto isa = parse_isa(isa_name);
  if (!isa || *isa > detect_isa()) {
    fmt::print(stderr, "--isa: found {}, expected one that this CPU has, at most {}\n", isa_name,
               name_of(detect_isa()));
    return 2;
  }
  std::vector<Subject> subjects;
  std::vector<std::pair<std::string, std::string>> named = {{"--dtype", weights}};
  for (const std::string& name : beside) named.emplace_back("--beside", name);
  for (const auto& [option, name] : named) {
    const std::vector<Subject> known = subjects_of(*isa);
    const auto found = std::find_if(known.begin(), known.end(), [&](const Subject& one) { return one.name == name; });
    if (found == known.end()) {
      fmt::print(stderr, "{}: found {}, expected one of {}\n", option, name,
                 fmt::join(known | std::views::transform(&Subject::name), ", "));
      return 2;
    }
    subjects.push_back(*found);
  }
  flush_subnormals_to_zero();
  // As the programs' threads are; free ones are found on one core for some milliseconds after the roofs' own.
  ThreadPool pool(threads, ThreadPool::Pin::kToOwnCores);
  fmt::print("{}, {} thread(s), medians of {}\n", isa_name, threads, repetitions);
  if (shapes != "large") {
    report("shipped target (12 layers, d 256, ff 768, vocabulary 4096)", llama_like(12, 256, 8, 768, 4096), subjects,
           rows, pool, repetitions * 10);
  }
  if (shapes != "shipped") {
    report("large shape (3 layers, d 2048, ff 5632, vocabulary 8192)", llama_like(3, 2048, 16, 5632, 8192), subjects,
           rows, pool, repetitions);
  }
  return 0;
}
