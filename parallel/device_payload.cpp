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

/// A point in a stream whose time the GPU notes whenever it comes by, in a graph as well.
class TimedEvent {
 public:
  TimedEvent() {
    cudaEvent_t event = nullptr;
    cuda_check(cudaEventCreate(&event), "cudaEventCreate");
    event_.reset(event);
  }
  void capture(cudaStream_t stream) const {
    cuda_check(cudaEventRecordWithFlags(event_.get(), stream, cudaEventRecordExternal), "cudaEventRecordWithFlags");
  }
  double seconds_since(const TimedEvent& begin) const {
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, begin.event_.get(), event_.get()), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

constexpr std::size_t kAlignment = 256;  // as cudaMalloc's own

class CudaPayload final : public DevicePayload {
 public:
  CudaPayload(Communicator& group, DType dtype, std::size_t elements, DeviceWay way, Progress& progress)
      : group_(group),
        progress_(progress),
        dtype_(dtype),
        elements_(elements),
        timed_(way == DeviceWay::kManyInGraph ? all_reduces_in_graph(elements * size_of(dtype)) : 0),
        stride_((elements * size_of(dtype) + kAlignment - 1) / kAlignment * kAlignment),
        memory_(stride_ * static_cast<std::size_t>(1 + timed_)) {
    if (way != DeviceWay::kCall) {
      const InCollective guard(progress_);
      enqueue(0);  // what is captured has run before
      wait();
      graph_ = std::make_unique<Graph>(stream_.get(), [&] { enqueue_all(); });
    }
  }

  int count() const override { return 1 + timed_; }
  void write(std::span<const std::byte> bytes) override {
    copy(at(0), bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    for (int which = 1; which < count(); ++which) {
      copy(at(which), at(0), bytes.size(), cudaMemcpyDeviceToDevice);
    }
    wait();
  }
  std::optional<double> all_reduce() override {
    const InCollective guard(progress_);
    if (graph_ != nullptr) {
      graph_->launch(stream_.get());
    } else {
      enqueue(0);
    }
    wait();
    return timed_ > 0 ? std::optional(end_.seconds_since(begin_) / timed_) : std::nullopt;
  }
  void read(int which, std::span<std::byte> bytes) override {
    copy(bytes.data(), at(which), bytes.size(), cudaMemcpyDeviceToHost);
    wait();
  }

 private:
  std::byte* at(int which) const { return memory_.data() + stride_ * static_cast<std::size_t>(which); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind) {
    cuda_check(cudaMemcpyAsync(to, from, bytes, kind, stream_.get()), "cudaMemcpyAsync");
  }
  void enqueue(int which) {
    const Stream stream{stream_.get()};
    if (dtype_ == DType::kF32) {
      group_.all_reduce(std::span(reinterpret_cast<float*>(at(which)), elements_), stream);
    } else {
      group_.all_reduce(std::span(reinterpret_cast<BF16*>(at(which)), elements_), stream);
    }
  }
  /// The first one ends on all ranks at about the same time: what one rank was launched later than another is not in the time of the others.
  void enqueue_all() {
    enqueue(0);
    if (timed_ == 0) {
      return;
    }
    begin_.capture(stream_.get());
    for (int which = 1; which < count(); ++which) {
      enqueue(which);
    }
    end_.capture(stream_.get());
  }
  void wait() {
    on_gpu::wait_for(stream_.get(), [&] { group_.poll(); });
  }

  Communicator& group_;
  Progress& progress_;
  DType dtype_;
  std::size_t elements_;
  int timed_;           // all-reduces between the events
  std::size_t stride_;  // bytes from one payload to the next
  on_gpu::Memory memory_;
  on_gpu::OwnStream stream_;
  TimedEvent begin_;
  TimedEvent end_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace

std::unique_ptr<DevicePayload> make_device_payload(Communicator& group, DType dtype, std::size_t elements,
                                                   DeviceWay way, Progress& progress) {
  return std::make_unique<CudaPayload>(group, dtype, elements, way, progress);
}

}  // namespace specdec
