#include <sched.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cublas_product.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_gpu.h"
#include "backend/cuda/gpu_backend.h"
#include "backend/cuda/staging.h"

namespace specdec {
namespace {

class DeviceBuffer final : public Buffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    void* memory = nullptr;
    cuda_check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
    memory_.reset(static_cast<std::byte*>(memory));
    cuda_check(cudaMemset(memory, 0, bytes), "cudaMemset");
    // The default stream's work is not ordered before that of a stream that does not block on it.
    cuda_check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  std::byte* data() override { return memory_.get(); }
  std::size_t bytes() const override { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_;
};

/// A wait that an observer, if any, is told of, also of its end by an exception.
class Waiting {
 public:
  explicit Waiting(WaitObserver* observer) : observer_(observer) {
    if (observer_ != nullptr) {
      observer_->begin_wait();
    }
  }
  ~Waiting() {
    if (observer_ != nullptr) {
      observer_->end_wait();
    }
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  void poll() const {
    if (observer_ != nullptr) {
      observer_->poll();
    }
  }

 private:
  WaitObserver* observer_;
};

/// Host memory that stays where it is, so that copies need no help of the host.
class PinnedBuffer final : public Buffer {
 public:
  explicit PinnedBuffer(std::size_t bytes) : bytes_(bytes) {
    void* memory = nullptr;
    cuda_check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    memory_.reset(static_cast<std::byte*>(memory));
  }
  std::byte* data() override { return memory_.get(); }
  std::size_t bytes() const override { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { cudaFreeHost(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_;
};

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};

/// Copies of a stream, through memory that the GPU reads without the host's help.
class StreamCopies {
 public:
  using Mark = std::unique_ptr<CUevent_st, DestroyEvent>;

  /// `observer`: what its waits are told to, null or not.
  StreamCopies(cudaStream_t stream, std::shared_ptr<WaitObserver* const> observer)
      : stream_(stream), observer_(std::move(observer)) {}

  std::unique_ptr<Buffer> allocate(std::size_t bytes) { return std::make_unique<PinnedBuffer>(bytes); }
  void to_device(std::byte* to, const std::byte* from, std::size_t bytes) {
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
  }
  void to_host(std::byte* to, const std::byte* from, std::size_t bytes) {
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
  }
  /// After all that was enqueued so far.
  void mark(Mark& mark) {
    if (mark == nullptr) {
      cudaEvent_t event = nullptr;
      cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
      mark.reset(event);
    }
    cuda_check(cudaEventRecord(mark.get(), stream_), "cudaEventRecord");
  }
  /// Polls: a rank that is blocked in the driver could not be told that the job ends.
  void wait(const Mark& mark) {
    cudaError_t status = cudaEventQuery(mark.get());
    const Waiting waiting(status == cudaErrorNotReady ? *observer_ : nullptr);
    for (; status == cudaErrorNotReady; status = cudaEventQuery(mark.get())) {
      waiting.poll();
      sched_yield();
    }
    cuda_check(status, "cudaEventQuery");
  }

 private:
  cudaStream_t stream_;
  std::shared_ptr<WaitObserver* const> observer_;
};

class StreamMoments final : public Moments {
 public:
  StreamMoments(cudaStream_t stream, int count) : stream_(stream) {
    for (int i = 0; i < count; ++i) {
      cudaEvent_t event = nullptr;
      cuda_check(cudaEventCreate(&event), "cudaEventCreate");
      events_.emplace_back(event);
    }
  }
  void mark(int which) override { cuda_check(cudaEventRecord(events_[which].get(), stream_), "cudaEventRecord"); }
  double between(int from, int to) const override {
    constexpr double kSecondsPerMillisecond = 1e-3;
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, events_[from].get(), events_[to].get()), "cudaEventElapsedTime");
    return kSecondsPerMillisecond * static_cast<double>(milliseconds);
  }

 private:
  cudaStream_t stream_;
  std::vector<std::unique_ptr<CUevent_st, DestroyEvent>> events_;
};

/// A GPU and one stream of its own, in which everything happens.
class StreamDevice {
 public:
  using Gpu = cuda::CudaGpu;

  /// A graph, ready to be launched.
  class Recording {
   public:
    explicit Recording(cudaGraph_t graph) {
      cudaGraphExec_t executable = nullptr;
      cuda_check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
      executable_.reset(executable);
    }
    cudaGraphExec_t get() const { return executable_.get(); }

   private:
    struct Destroy {
      void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
    };
    std::unique_ptr<CUgraphExec_st, Destroy> executable_;
  };

  explicit StreamDevice(const CudaOptions& options)
      : device_(options), overlap_(options.overlap && device_.properties().major >= kOverlapMajor) {
    cudaStream_t stream = nullptr;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    stream_.reset(stream);
    staging_ = std::make_unique<cuda::Staging<StreamCopies>>(StreamCopies(stream, observer_));
    if (options.products == CudaProducts::kCublas) {
      cublas_ = std::make_unique<CublasProduct>();
    }
  }

  std::string description() const { return "cuda (" + device_.description() + ")"; }
  void* stream() const { return stream_.get(); }

  std::unique_ptr<Buffer> allocate(std::size_t bytes) { return std::make_unique<DeviceBuffer>(bytes); }
  void upload(std::byte* to, std::span<const std::byte> from) { staging_->upload(to, from); }
  void download(std::span<std::byte> to, const std::byte* from) { staging_->download(to, from); }
  void synchronize() { staging_->finish(); }
  void observe_waits(WaitObserver* observer) { *observer_ = observer; }
  std::unique_ptr<Moments> make_moments(int count) { return std::make_unique<StreamMoments>(stream_.get(), count); }

  template <auto kFunction, typename... Arguments>
  void launch(const cuda::Grid& grid, const Arguments&... arguments) {
    cuda_check(cuda::Launch<kFunction>::on(stream_.get(), overlap_, grid, arguments...), "a kernel's launch");
  }

  /// Other threads may go on allocating meanwhile.
  Recording record(const std::function<void()>& launches) {
    cuda_check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    launches();
    cudaGraph_t graph = nullptr;
    cuda_check(cudaStreamEndCapture(stream_.get(), &graph), "cudaStreamEndCapture");
    const std::unique_ptr<CUgraph_st, DestroyGraph> owner(graph);
    return Recording(graph);
  }
  void multiply_by_library(DType dtype, const std::byte* weights, const std::byte* x, std::int64_t inputs, Rows y) {
    cublas_->multiply(stream_.get(), dtype, weights, x, inputs, y);
  }
  void replay(const Recording& recording) {
    cuda_check(cudaGraphLaunch(recording.get(), stream_.get()), "cudaGraphLaunch");
  }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  struct DestroyGraph {
    void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
  };
  /// Of the first GPUs that start kernels before the one before has ended.
  static constexpr int kOverlapMajor = 9;

  CudaDevice device_;
  bool overlap_;
  std::unique_ptr<CUstream_st, Destroy> stream_;
  std::shared_ptr<WaitObserver*> observer_ = std::make_shared<WaitObserver*>(nullptr);
  std::unique_ptr<cuda::Staging<StreamCopies>> staging_;
  std::unique_ptr<CublasProduct> cublas_;  // for CudaProducts::kCublas
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<cuda::GpuBackend<StreamDevice>>(StreamDevice(options), options);
}

}  // namespace specdec
