#include "parallel/device_payload.h"

#include <cuda_runtime_api.h>

#include "parallel/on_gpu.h"

namespace specdec {
namespace {

class Graph {
 public:
  /// Of what `enqueue` puts into `stream`.
  template <typename Enqueue>
  Graph(cudaStream_t stream, Enqueue&& enqueue) {
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    enqueue();
    cudaGraph_t graph = nullptr;
    cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    cuda_check(status, "cudaGraphInstantiate");
    executable_.reset(executable);
  }
  void launch(cudaStream_t stream) const { cuda_check(cudaGraphLaunch(executable_.get(), stream), "cudaGraphLaunch"); }

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  std::unique_ptr<CUgraphExec_st, Destroy> executable_;
};

class CudaPayload final : public DevicePayload {
 public:
  CudaPayload(Communicator& group, DType dtype, std::size_t elements, DeviceWay way, Progress& progress)
      : group_(group), progress_(progress), dtype_(dtype), elements_(elements), memory_(elements * size_of(dtype)) {
    if (way == DeviceWay::kGraph) {
      const InCollective guard(progress_);
      enqueue();  // what is captured has run before
      wait();
      graph_ = std::make_unique<Graph>(stream_.get(), [&] { enqueue(); });
    }
  }

  void write(std::span<const std::byte> bytes) override {
    cuda_check(cudaMemcpyAsync(memory_.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_.get()),
               "cudaMemcpyAsync");
    wait();
  }
  void all_reduce() override {
    const InCollective guard(progress_);
    if (graph_ != nullptr) {
      graph_->launch(stream_.get());
    } else {
      enqueue();
    }
    wait();
  }
  void read(std::span<std::byte> bytes) override {
    cuda_check(cudaMemcpyAsync(bytes.data(), memory_.data(), bytes.size(), cudaMemcpyDeviceToHost, stream_.get()),
               "cudaMemcpyAsync");
    wait();
  }

 private:
  void enqueue() {
    const Stream stream{stream_.get()};
    if (dtype_ == DType::kF32) {
      group_.all_reduce(std::span(reinterpret_cast<float*>(memory_.data()), elements_), stream);
    } else {
      group_.all_reduce(std::span(reinterpret_cast<BF16*>(memory_.data()), elements_), stream);
    }
  }
  void wait() {
    on_gpu::wait_for(stream_.get(), [&] { group_.poll(); });
  }

  Communicator& group_;
  Progress& progress_;
  DType dtype_;
  std::size_t elements_;
  on_gpu::Memory memory_;
  on_gpu::OwnStream stream_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace

std::unique_ptr<DevicePayload> make_device_payload(Communicator& group, DType dtype, std::size_t elements,
                                                   DeviceWay way, Progress& progress) {
  return std::make_unique<CudaPayload>(group, dtype, elements, way, progress);
}

}  // namespace specdec
