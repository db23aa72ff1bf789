// How fast products are, beside a plain read of memory and cuBLAS in the same run: for every shape of tensor_variants.cu. Exit code 1 where two
// shapes, or a row by itself and among others, differ in a bit; 2 without a GPU.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cublas_product.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/tensor_tables.h"
#include "backend/error.h"
#include "tests/gpu/graph_timer.h"
#include "tests/gpu/pass_kernels.h"
#include "tests/gpu/read_bench.h"
#include "tests/gpu/tensor_variants.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostRows = 64;
/// Second-level caches hold 40 to 126 MB: what a launch reads, many others have been before it.
constexpr std::size_t kPool = std::size_t{2304} * 1024 * 1024;
constexpr std::size_t kLeastRead = std::size_t{1024} * 1024 * 1024;  // by a graph

class DeviceMemory final : public Buffer {
 public:
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    cuda_check(cudaMalloc(&memory_, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
  }
  ~DeviceMemory() override { cudaFree(memory_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::byte* data() override { return static_cast<std::byte*>(memory_); }
  std::size_t bytes() const override { return bytes_; }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_;
};

/// As much of a Device (gpu_backend.h) as tables need.
struct Copies {
  std::unique_ptr<Buffer> allocate(std::size_t bytes) { return std::make_unique<DeviceMemory>(bytes); }
  void upload(std::byte* to, std::span<const std::byte> from) {
    cuda_check(cudaMemcpy(to, from.data(), from.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
};

/// One linear layer of Llama 3 8B.
struct Layer {
  std::string name;
  std::int64_t outputs;
  std::int64_t inputs;
  bool row_parallel;  ///< its inputs, else its outputs, are cut over ranks

  Layer on(std::int64_t ranks) const {
    return {name, row_parallel ? outputs : outputs / ranks, row_parallel ? inputs / ranks : inputs, row_parallel};
  }
  cuda::TensorOrder order(std::int64_t ranks) const {
    std::vector<Range> slices = {{0, inputs}};
    if (row_parallel) {
      slices.clear();
      for (std::int64_t i = 0; i < 16 / ranks; ++i) {
        slices.push_back({inputs * i * ranks / 16, inputs * (i + 1) * ranks / 16});
      }
    }
    return cuda::TensorOrder(slices);
  }
  std::size_t bytes() const { return static_cast<std::size_t>(outputs * inputs) * 2; }
};

const std::vector<Layer> kLayers = {{"qkv", 6144, 4096, false},
                                    {"o", 4096, 4096, true},
                                    {"gate_up", 28'672, 4096, false},
                                    {"down", 4096, 14'336, true},
                                    {"head", 128'256, 4096, false}};

class Bench {
 public:
  /// Without the shapes whose names have one of `without` in them.
  Bench(const CudaDevice& device, bool overlap, std::span<const std::string> without)
      : overlap_(overlap),
        pool_(kPool),
        x_(kMostRows * 14'336 * sizeof(float)),
        halves_(kMostRows * 14'336 * 2),
        packed_(kMostRows * 14'336 * 2),
        y_(kMostRows * 128'256 * sizeof(float)),
        variants_(tensor_variants()) {
    std::erase_if(variants_, [&](const TensorVariant& variant) {
      return std::ranges::any_of(
          without, [&](const std::string& text) { return variant.name().find(text) != std::string::npos; });
    });
    fill_with_halves(timer_.stream(), pool_.data(), kPool);
    fill_with_halves(timer_.stream(), halves_.data(), halves_.bytes());
    std::vector<float> x(x_.bytes() / sizeof(float));
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    std::ranges::generate(x, [&] { return normal(engine); });
    copies_.upload(x_.data(), std::as_bytes(std::span(x)));
    cuda_check(cudaStreamSynchronize(timer_.stream()), "cudaStreamSynchronize");

    const cudaDeviceProp& properties = device.properties();
    most_shared_ = properties.sharedMemPerBlockOptin;
    const std::vector<ReadFigure> reads = measure_reads(timer_, pool_.data(), kPool, properties.multiProcessorCount);
    measured_ = reads.front().bytes_per_second;
    nominal_ = nominal_bandwidth(properties.name);
    result_["gpu"] = device.description();
    result_["overlap"] = overlap_;
    result_["read"] = json::array();
    for (const ReadFigure& read : reads) {
      result_["read"].push_back({{"blocks_per_multiprocessor", read.blocks_per_multiprocessor},
                                 {"threads", read.threads},
                                 {"loads", read.loads},
                                 {"bytes_per_second", read.bytes_per_second}});
    }
    result_["nominal_bytes_per_second"] = nominal_ ? json(*nominal_) : json(nullptr);
    result_["products"] = json::array();
    fmt::print(
        "{}\nplain read: {:.0f} GB/s ({} blocks a multiprocessor, {} threads, {} loads){}\n\n", device.description(),
        measured_ / 1e9, reads.front().blocks_per_multiprocessor, reads.front().threads, reads.front().loads,
        nominal_ ? fmt::format(", {:.1f} % of the data sheet's {:.0f}", 100 * measured_ / *nominal_, *nominal_ / 1e9)
                 : "");
  }

  /// Times `layer` with `rows` rows and prints a line.
  void run(const Layer& whole, std::int64_t ranks, std::int64_t rows) {
    const Layer layer = whole.on(ranks);
    const cuda::TensorOrder order = whole.on(ranks).order(ranks);
    const ConstRows x{x_.floats(), rows, layer.inputs, layer.inputs};
    const Rows y{y_.floats(), rows, layer.outputs, layer.outputs};
    const double cublas = time(layer, [&](cudaStream_t stream, const std::byte* weights) {
      cublas_.multiply(stream, DType::kBF16, weights, halves_.data(), layer.inputs, y);
    });
    note(layer, ranks, rows, "cublas", cublas, true);
    double best = 0;
    std::string name;
    std::vector<float> expected;
    for (const TensorVariant& variant : variants_) {
      const cuda::TensorShape& shape = variant.shape;
      const cuda::TensorTables<Copies> tables(copies_, order, shape.warps);
      const bool fits = shape.shared_bytes(tables.view(nullptr, {}).stack) <= most_shared_;
      if (!fits || !suits(shape, rows)) {
        continue;
      }
      const auto enqueue = [&](cudaStream_t stream, const std::byte* weights) {
        variant.enqueue(stream, overlap_, tables.view(weights, {layer.outputs}), x,
                        reinterpret_cast<cuda::Inputs4*>(packed_.data()), y);
      };
      double seconds = 0;
      bool same = false;
      try {
        seconds = time(layer, enqueue);
        enqueue(timer_.stream(), pool_.data());
        same = shape.vector || same_bits(expected, y, whole.name, ranks);
      } catch (const Error& error) {
        throw Error(error.kind(), fmt::format("{}, {} ranks, {} rows, {}: {}", whole.name, ranks, rows, variant.name(),
                                              error.what()));
      }
      note(layer, ranks, rows, variant.name(), seconds, same);
      if (!shape.vector && (best == 0 || seconds < best)) {
        best = seconds;
        name = variant.name();
      }
    }
    double& one_row = one_row_[whole.name + std::to_string(ranks)];
    if (rows == 1) {
      one_row = best;
    }
    const double rate = static_cast<double>(layer.bytes()) / best;
    fmt::print("{:<8} {:>5} {:>4} {:>9.2f} {:>7.0f} {:>9.1f} {:>9} {:>8.3f} {:>9.2f} {:>8.2f}  {}\n", whole.name, ranks,
               rows, best * 1e6, rate / 1e9, 100 * rate / measured_,
               nominal_ ? fmt::format("{:.1f}", 100 * rate / *nominal_) : "-", best / one_row, cublas * 1e6,
               cublas / best, name);
    std::fflush(stdout);
  }

  static void print_head() {
    fmt::print("{:<8} {:>5} {:>4} {:>9} {:>7} {:>9} {:>9} {:>8} {:>9} {:>8}  {}\n", "layer", "ranks", "rows", "us",
               "GB/s", "% of read", "% of data", "/1 row", "cuBLAS us", "/ours", "fastest shape");
  }

  json& result() { return result_; }
  bool all_same() const { return all_same_; }

 private:
  static bool suits(const cuda::TensorShape& shape, std::int64_t rows) {
    if (shape.vector) {
      return rows <= shape.rows();
    }
    // The shapes for more rows beside those for few show what the wider tile costs.
    return rows <= 16 ? (rows <= shape.rows() && shape.rows() <= 16) : shape.packed && shape.rows() >= 16;
  }

  template <typename Enqueue>
  double time(const Layer& layer, const Enqueue& enqueue) {
    const std::size_t copies = kPool / layer.bytes();
    const auto launches = static_cast<int>(std::max(copies, kLeastRead / layer.bytes()));
    return timer_.seconds(std::min(launches, kMostLaunches), [&](cudaStream_t stream, int call) {
      enqueue(stream, pool_.data() + call % copies * layer.bytes());
    });
  }

  /// Whether y, of the pool's first copy, is what all other shapes found, and its first row that of one row.
  bool same_bits(std::vector<float>& expected, Rows y, const std::string& name, std::int64_t ranks) {
    std::vector<float> found(static_cast<std::size_t>(y.rows * y.cols));
    cuda_check(
        cudaMemcpyAsync(found.data(), y.data, found.size() * sizeof(float), cudaMemcpyDeviceToHost, timer_.stream()),
        "cudaMemcpyAsync");
    cuda_check(cudaStreamSynchronize(timer_.stream()), "cudaStreamSynchronize");
    std::vector<float>& first = first_row_[name + std::to_string(ranks)];
    if (first.empty()) {
      first.assign(found.begin(), found.begin() + y.cols);
    }
    if (expected.empty()) {
      expected = found;
    }
    const auto equal = [](std::span<const float> a, std::span<const float> b) {
      return std::memcmp(a.data(), b.data(), b.size_bytes()) == 0;
    };
    return equal(expected, found) && equal(found, first);
  }

  void note(const Layer& layer, std::int64_t ranks, std::int64_t rows, const std::string& shape, double seconds,
            bool same) {
    const double rate = static_cast<double>(layer.bytes()) / seconds;
    result_["products"].push_back({{"layer", layer.name},
                                   {"outputs", layer.outputs},
                                   {"inputs", layer.inputs},
                                   {"ranks", ranks},
                                   {"rows", rows},
                                   {"shape", shape},
                                   {"seconds", seconds},
                                   {"share_of_read", rate / measured_},
                                   {"share_of_nominal", nominal_ ? json(rate / *nominal_) : json(nullptr)},
                                   {"same_bits", same}});
    if (!same) {
      all_same_ = false;
      fmt::print("WRONG: {}, {} rows, {}: other bits than the first shape or than one row\n", layer.name, rows, shape);
    }
  }

  static constexpr int kMostLaunches = 200;

  bool overlap_;
  GraphTimer timer_;
  Copies copies_;
  CublasProduct cublas_;
  DeviceMemory pool_;
  DeviceMemory x_;
  DeviceMemory halves_;
  DeviceMemory packed_;
  DeviceMemory y_;
  std::vector<TensorVariant> variants_;
  std::size_t most_shared_ = 0;
  double measured_ = 0;
  std::optional<double> nominal_;
  std::map<std::string, double> one_row_;
  std::map<std::string, std::vector<float>> first_row_;
  json result_;
  bool all_same_ = true;
};

int run(int argc, char** argv) {
  CLI::App app{"Products and the other kernels of a pass on a GPU, beside a plain read and cuBLAS.", "product_bench"};
  std::string path;
  std::vector<std::int64_t> ranks = {1, 8};
  std::vector<std::int64_t> rows = {1, 2, 5, 9, 16, 64};
  app.add_option("--json", path, "Write all figures");
  app.add_option("--ranks", ranks, "Of Llama 3 8B, whose shard is multiplied with")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--rows", rows, "1 first: others are compared with it")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, kMostRows));
  bool overlap = false;
  app.add_flag("--overlap", overlap, "Products start while the one before them ends, where a GPU can (cuda.overlap)");
  int carveout = -1;
  app.add_option("--carveout", carveout,
                 "Percent of a multiprocessor's cache that is memory of blocks; -1: the driver's choice")
      ->check(CLI::Range(-1, 100))
      ->capture_default_str();
  bool kernels_alone = false;
  app.add_flag("--kernels-alone", kernels_alone, "Without the products");
  std::vector<std::string> without;
  app.add_option("--without", without, "Leave out shapes whose names have this in them, such as 'vector'")
      ->delimiter(',');
  CLI11_PARSE(app, argc, argv);

  const CudaDevice device{CudaOptions{}};
  Bench bench(device, overlap && device.properties().major >= 9, without);
  prefer_shared_memory(carveout);
  bench.result()["carveout"] = carveout;
  if (!kernels_alone) {
    Bench::print_head();
    for (const std::int64_t count : ranks) {
      for (const Layer& layer : kLayers) {
        for (const std::int64_t row : rows) {
          bench.run(layer, count, row);
        }
      }
    }
  }
  bench.result()["kernels"] = time_pass_kernels();
  if (!path.empty()) {
    std::ofstream(path) << bench.result().dump(1) << "\n";
  }
  return bench.all_same() ? 0 : 1;
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  try {
    return specdec::run(argc, argv);
  } catch (const specdec::Error& error) {
    std::cerr << "product_bench: " << error.what() << "\n";
    return specdec::exit_code(error.kind());
  }
}
