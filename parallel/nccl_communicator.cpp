#include "parallel/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <set>
#include <thread>
#include <type_traits>
#include <utility>

#include "backend/cuda/device_sums.h"
#include "parallel/device_communicator.h"
#include "parallel/gathered_sum.h"
#include "parallel/on_gpu.h"
#include "parallel/value_bytes.h"

namespace specdec {
namespace {

// A piece of 4 MB for 8 ranks: prefill blocks of 64 rows of 16,384 are one.
constexpr std::size_t kScratchBytes = std::size_t{32} << 20;
constexpr std::size_t kSmallestWarmed = 256;
constexpr std::size_t kLargestWarmed = std::size_t{4} << 20;
constexpr auto kAbortLimit = std::chrono::seconds(1);

template <typename T>
constexpr ncclDataType_t type_of() {
  return std::is_same_v<T, float> ? ncclFloat32 : ncclBfloat16;
}

std::string words(ncclResult_t result) {
  const char* const detail = ncclGetLastError(nullptr);
  const std::string more = detail == nullptr || *detail == '\0' ? "" : fmt::format(": {}", detail);
  return fmt::format("{}{}", ncclGetErrorString(result), more);
}

/// The library's communicator, never blocking and never left behind.
class Handle {
 public:
  Handle(const ncclUniqueId& id, int rank, int size, const CudaDevice& device) : device_(device) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    settle(ncclCommInitRankConfig(&comm_, size, id, rank, &config), "NCCL's start");
  }
  ~Handle() {
    if (comm_ == nullptr) {
      return;
    }
    if (std::uncaught_exceptions() > 0) {  // the others may never come to an end in order
      abort();
      return;
    }
    try {
      settle(ncclCommFinalize(comm_), "ncclCommFinalize");
      ncclCommDestroy(comm_);
    } catch (const Error&) {
      // It has been aborted. What the job was for is done.
    }
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  ncclComm_t get() const { return comm_; }

  /// Returns when the library has taken on what it answered `result` to; throws when it could not.
  void settle(ncclResult_t result, std::string_view what) {
    constexpr int kPolls = 1000;
    Backoff backoff(kPolls);
    while (result == ncclInProgress) {
      backoff.pause();
      result = state();
    }
    require(result, what);
  }
  /// Throws when the library has found out that what it took on cannot be done.
  void poll() {
    const ncclResult_t result = state();
    require(result == ncclInProgress ? ncclSuccess : result, "NCCL");
  }

 private:
  ncclResult_t state() const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    return asked == ncclSuccess ? state : asked;
  }
  void require(ncclResult_t result, std::string_view what) {
    if (result == ncclSuccess) {
      return;
    }
    const std::string why = words(result);
    abort();
    throw Error(result == ncclRemoteError ? ErrorKind::kPeerFailed : ErrorKind::kInternal,
                fmt::format("{}: {}", what, why));
  }
  /// Also ends kernels that wait for a rank that will not come. On a thread of its own, since it can hang by itself; then it is left to the end of
  /// the process, which is near.
  void abort() {
    const ncclComm_t comm = std::exchange(comm_, nullptr);
    if (comm == nullptr) {
      return;
    }
    std::promise<void> done;
    const std::future<void> ended = done.get_future();
    std::thread([comm, device = device_, done = std::move(done)]() mutable {
      cudaSetDevice(device.index());
      ncclCommAbort(comm);
      done.set_value();
    }).detach();
    ended.wait_for(kAbortLimit);
  }

  CudaDevice device_;
  ncclComm_t comm_ = nullptr;
};

class NcclCommunicator final : public DeviceCommunicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host_transport, NcclReduction reduction, const ncclUniqueId& id,
                   const CudaDevice& device, Progress& progress)
      : DeviceCommunicator(std::move(host_transport)), reduction_(reduction), progress_(progress) {
    const InCollective guard(progress_);
    if (reduction_ == NcclReduction::kTree) {
      scratch_ = on_gpu::Memory(kScratchBytes);
    }
    handle_ = std::make_unique<Handle>(id, rank(), size(), device);
    warm_up();
  }
  ~NcclCommunicator() override {
    const InCollective guard(progress_);
    handle_.reset();
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  std::string_view transport() const override { return reduction_ == NcclReduction::kTree ? "nccl" : "nccl-fast"; }

  void all_reduce(std::span<float> data, Stream stream) override { reduce(data, stream); }
  void all_reduce(std::span<BF16> data, Stream stream) override { reduce(data, stream); }
  void poll() override { handle_->poll(); }

 private:
  template <typename T>
  void reduce(std::span<T> data, Stream stream) {
    if (data.empty()) {
      return;
    }
    const InCollective guard(progress_);
    const auto on = static_cast<cudaStream_t>(stream.native);
    note_size(data.size_bytes(), on);
    if (reduction_ == NcclReduction::kLibrary) {
      handle_->settle(ncclAllReduce(data.data(), data.data(), data.size(), type_of<T>(), ncclSum, handle_->get(), on),
                      "ncclAllReduce");
      return;
    }
    reduce_gathered(
        data, scratch_.bytes(), size(),
        [&](std::span<const T> piece, T* all) {
          handle_->settle(ncclAllGather(piece.data(), all, piece.size(), type_of<T>(), handle_->get(), on),
                          "ncclAllGather");
        },
        [&](const T* all, std::span<T> piece) {
          cuda::sum_gathered(all, size(), std::ssize(piece), piece.data(), stream);
        });
  }

  /// A size that first runs while a graph is captured would have the library connect and load kernels then.
  void note_size(std::size_t bytes, cudaStream_t stream) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cuda_check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
    if (capture == cudaStreamCaptureStatusNone) {
      sizes_.insert(bytes);
    } else {
      check(sizes_.contains(bytes), "an all-reduce is captured in a graph that has not run outside of one");
    }
  }

  template <typename T>
  void warm_up_with(on_gpu::Memory& memory, const on_gpu::OwnStream& stream) {
    T* const data = reinterpret_cast<T*>(memory.data());
    for (std::size_t bytes = kSmallestWarmed; bytes <= kLargestWarmed; bytes *= 2) {
      reduce(std::span(data, bytes / sizeof(T)), Stream{stream.get()});
      on_gpu::wait_for(stream.get(), [&] { poll(); });
    }
  }
  void warm_up() {
    on_gpu::Memory memory(kLargestWarmed);
    const on_gpu::OwnStream stream;
    warm_up_with<float>(memory, stream);
    warm_up_with<BF16>(memory, stream);
  }

  NcclReduction reduction_;
  Progress& progress_;
  on_gpu::Memory scratch_;  // of kTree: a piece of every rank
  std::unique_ptr<Handle> handle_;
  std::set<std::size_t> sizes_;  // bytes of payloads that have run
};

ncclUniqueId share_id(Communicator& host, std::string_view place) {
  auto id = agree(host, [&] {
    ncclUniqueId mine{};
    if (host.rank() == 0) {
      const ncclResult_t result = ncclGetUniqueId(&mine);
      if (result != ncclSuccess) {
        throw_bad_input(fmt::format("{}: found nccl, which does not start: {}", place, words(result)));
      }
    }
    return mine;
  });
  host.broadcast(value_bytes(id), 0, Stream{});
  return id;
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, NcclReduction reduction,
                                                     const CudaOptions& gpu, Progress& progress,
                                                     std::string_view place) {
  if (host->size() == 1) {
    return host;
  }
  const CudaDevice device =
      on_gpu::open_device(*host, gpu, place, reduction == NcclReduction::kTree ? "nccl" : "nccl-fast");
  const ncclUniqueId id = share_id(*host, place);
  return std::make_unique<NcclCommunicator>(std::move(host), reduction, id, device, progress);
}

}  // namespace specdec
