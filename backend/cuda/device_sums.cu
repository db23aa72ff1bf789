#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_gpu.h"
#include "backend/cuda/device_sums.h"
#include "backend/cuda/peer_sum.h"
#include "backend/cuda/rank_sum.h"

namespace specdec::cuda {
namespace {

/// A stream that somebody else owns.
class StreamLaunches {
 public:
  using Gpu = CudaGpu;

  explicit StreamLaunches(Stream stream) : stream_(static_cast<cudaStream_t>(stream.native)) {}

  template <auto kFunction, typename... Arguments>
  void launch(const Grid& grid, const Arguments&... arguments) {
    constexpr bool kOverlap = false;  // a library's kernel or another rank's is between it and the one before
    cuda_check(Launch<kFunction>::on(stream_, kOverlap, grid, arguments...), "a kernel's launch");
  }

 private:
  cudaStream_t stream_;
};

}  // namespace

void sum_gathered(const float* gathered, int ranks, std::int64_t count, float* out, Stream stream) {
  StreamLaunches launches(stream);
  launch_rank_sum(launches, gathered, ranks, count, out);
}

void sum_gathered(const BF16* gathered, int ranks, std::int64_t count, BF16* out, Stream stream) {
  StreamLaunches launches(stream);
  launch_rank_sum(launches, gathered, ranks, count, out);
}

void sum_over_peers(const Peers& peers, float* data, std::int64_t count, Stream stream) {
  StreamLaunches launches(stream);
  launch_peer_sum(launches, peers, data, count);
}

void sum_over_peers(const Peers& peers, BF16* data, std::int64_t count, Stream stream) {
  StreamLaunches launches(stream);
  launch_peer_sum(launches, peers, data, count);
}

}  // namespace specdec::cuda
