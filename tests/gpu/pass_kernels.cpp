#include "tests/gpu/pass_kernels.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_backend.h"

namespace specdec {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::int64_t kWidth = 4096;
constexpr std::int64_t kForward = 14'336;
constexpr std::int64_t kHeadDim = 128;
constexpr std::int64_t kKvHeads = 8;
constexpr std::int64_t kHeads = 32;
constexpr std::int64_t kCapacity = 8320;
constexpr int kCalls = 100;  // in a pass
constexpr int kPasses = 10;

class PassKernels {
 public:
  explicit PassKernels(const CudaOptions& options)
      : backend_(make_cuda_backend(options)),
        recorder_(backend_->make_recorder()),
        kv_(backend_->make_kv({.layers = 1, .kv_heads = kKvHeads, .head_dim = kHeadDim, .capacity = kCapacity})),
        x_(backend_->allocate(kRows * 2 * kForward * sizeof(float))),
        y_(backend_->allocate(kRows * 2 * kForward * sizeof(float))),
        tables_(backend_->allocate(kCapacity * kHeadDim * sizeof(float))) {
    for (std::int32_t head = 0; head < kHeads; ++head) {
      kv_head_.push_back(head / static_cast<std::int32_t>(kHeads / kKvHeads));
    }
  }

  void run(std::int64_t rows) {
    time("rms_norm", rows, 0, [&](const RowChain&) {
      backend_->rms_norm(in(rows, kWidth), tables_->floats(), 1e-5F, out(rows, kWidth), {});
    });
    time("add_rms_norm", rows, 0, [&](const RowChain&) {
      backend_->add_rms_norm(out(rows, kWidth), in(rows, kWidth), tables_->floats(), 1e-5F, out(rows, kWidth), {});
    });
    time("rope_append", rows, 0, [&](const RowChain& chain) {
      backend_->rope_append(out(rows, kHeads * kHeadDim), out(rows, kKvHeads * kHeadDim), in(rows, kKvHeads * kHeadDim),
                            kHeadDim, tables_->floats(), tables_->floats(), *kv_, 0, chain, {});
    });
    time("rope q", rows, 0, [&](const RowChain& chain) {
      backend_->rope(out(rows, kHeads * kHeadDim), kHeadDim, tables_->floats(), tables_->floats(), chain, {});
    });
    time("kv_append", rows, 0, [&](const RowChain& chain) {
      backend_->kv_append(*kv_, 0, chain, in(rows, kKvHeads * kHeadDim), in(rows, kKvHeads * kHeadDim), {});
    });
    attend("attention", rows);
    time("silu_mul", rows, 0,
         [&](const RowChain&) { backend_->silu_mul(in(rows, 2 * kForward), out(rows, kForward), {}); });
    time("add", rows, 0, [&](const RowChain&) { backend_->add(out(rows, kWidth), in(rows, kWidth), {}); });
  }

  void attend(const std::string& how, std::int64_t rows) {
    for (const std::int64_t length : {128, 256, 500, 1024, 2048, 8192}) {
      time(fmt::format("{} over {}", how, length), rows, length, [&](const RowChain& chain) {
        backend_->attention(in(rows, kHeads * kHeadDim), *kv_, 0, chain, kv_head_, 0.088F, out(rows, kHeads * kHeadDim),
                            {});
      });
    }
  }

  json& result() { return result_; }

 private:
  static constexpr std::int64_t kRows = 16;

  ConstRows in(std::int64_t rows, std::int64_t cols) { return {x_->floats(), rows, cols, cols}; }
  Rows out(std::int64_t rows, std::int64_t cols) { return {y_->floats(), rows, cols, cols}; }

  /// As part of a pass that a recorder replays; the host's part of a pass is spread over many calls.
  void time(const std::string& what, std::int64_t rows, std::int64_t cached,
            const std::function<void(const RowChain&)>& operation) {
    std::vector<std::int32_t> position(static_cast<std::size_t>(rows));
    std::vector<std::int32_t> parent(position.size());
    std::iota(position.begin(), position.end(), static_cast<std::int32_t>(cached));
    std::iota(parent.begin(), parent.end(), -1);
    const RowChain chain{position, parent, cached};
    const auto pass = [&] {
      recorder_->run(variant_, chain, *kv_, [&] {
        for (int call = 0; call < kCalls; ++call) {
          operation(chain);
        }
      });
    };
    for (int warm_up = 0; warm_up < 3; ++warm_up) {
      pass();
    }
    backend_->synchronize({});
    const auto begin = Clock::now();
    for (int i = 0; i < kPasses; ++i) {
      pass();
    }
    backend_->synchronize({});
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count() / (kPasses * kCalls);
    ++variant_;
    fmt::print("{:<22} {:>4} {:>9.2f}\n", what, rows, seconds * 1e6);
    result_.push_back({{"kernel", what}, {"rows", rows}, {"seconds", seconds}});
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<PassRecorder> recorder_;
  std::unique_ptr<KvStore> kv_;
  std::unique_ptr<Buffer> x_;
  std::unique_ptr<Buffer> y_;
  std::unique_ptr<Buffer> tables_;
  std::vector<std::int32_t> kv_head_;
  int variant_ = 0;
  json result_ = json::array();
};

}  // namespace

json time_pass_kernels() {
  fmt::print("\n{:<22} {:>4} {:>9}\n", "kernel", "rows", "us");
  PassKernels kernels({});
  PassKernels together({.key_blocks_together = 1 << 20});
  for (const std::int64_t rows : {1, 5, 9, 16}) {
    kernels.run(rows);
    together.attend("together", rows);
  }
  json all = kernels.result();
  all.insert(all.end(), together.result().begin(), together.result().end());
  return all;
}

}  // namespace specdec
