#include "tests/gpu/graph_timer.h"

#include <algorithm>
#include <array>

#include "backend/cuda/cuda_device.h"

namespace specdec {
namespace {

constexpr int kWarmUps = 2;
constexpr int kReplays = 7;

}  // namespace

GraphTimer::GraphTimer() {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  stream_.reset(stream);
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreate(&event), "cudaEventCreate");
  begin_.reset(event);
  cuda_check(cudaEventCreate(&event), "cudaEventCreate");
  end_.reset(event);
}

double GraphTimer::seconds(int launches, const std::function<void(cudaStream_t, int)>& enqueue) {
  enqueue(stream_.get(), 0);  // what is loaded at a first launch is there before anything is captured
  cuda_check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  cuda_check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int call = 0; call < launches; ++call) {
    enqueue(stream_.get(), call);
  }
  cudaGraph_t captured = nullptr;
  cuda_check(cudaStreamEndCapture(stream_.get(), &captured), "cudaStreamEndCapture");
  const Owned<CUgraph_st> graph(captured);
  cudaGraphExec_t executable = nullptr;
  cuda_check(cudaGraphInstantiate(&executable, captured, 0), "cudaGraphInstantiate");
  const Owned<CUgraphExec_st> replayed(executable);

  std::array<float, kReplays> milliseconds{};
  for (int replay = -kWarmUps; replay < kReplays; ++replay) {
    cuda_check(cudaEventRecord(begin_.get(), stream_.get()), "cudaEventRecord");
    cuda_check(cudaGraphLaunch(executable, stream_.get()), "cudaGraphLaunch");
    cuda_check(cudaEventRecord(end_.get(), stream_.get()), "cudaEventRecord");
    cuda_check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    if (replay >= 0) {
      cuda_check(cudaEventElapsedTime(&milliseconds[replay], begin_.get(), end_.get()), "cudaEventElapsedTime");
    }
  }
  std::ranges::nth_element(milliseconds, milliseconds.begin() + kReplays / 2);
  return static_cast<double>(milliseconds[kReplays / 2]) * 1e-3 / launches;
}

}  // namespace specdec
