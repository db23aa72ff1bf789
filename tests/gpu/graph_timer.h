#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

namespace specdec {

/// Times work on a GPU by events around a CUDA graph of many launches, so that what the host does between launches is not in it.
class GraphTimer {
 public:
  GraphTimer();

  /// Seconds of one of `launches` calls of enqueue(stream, call): the median of some replays of a graph of all of them.
  double seconds(int launches, const std::function<void(cudaStream_t, int)>& enqueue);
  cudaStream_t stream() const { return stream_.get(); }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
    void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  template <typename T>
  using Owned = std::unique_ptr<T, Destroy>;

  Owned<CUstream_st> stream_;
  Owned<CUevent_st> begin_;
  Owned<CUevent_st> end_;
};

}  // namespace specdec
