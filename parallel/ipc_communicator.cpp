#include "parallel/ipc_communicator.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <exception>
#include <utility>
#include <vector>

#include "backend/cuda/device_sums.h"
#include "parallel/device_communicator.h"
#include "parallel/on_gpu.h"

namespace specdec {
namespace {

/// A word of host memory that kernels see.
class Flag {
 public:
  Flag() {
    void* memory = nullptr;
    cuda_check(cudaHostAlloc(&memory, sizeof(std::uint32_t), cudaHostAllocMapped), "cudaHostAlloc");
    word_.reset(static_cast<std::uint32_t*>(memory));
    *word_ = 0;
    void* on_device = nullptr;
    cuda_check(cudaHostGetDevicePointer(&on_device, memory, 0), "cudaHostGetDevicePointer");
    on_device_ = static_cast<const std::uint32_t*>(on_device);
  }
  void raise() { std::atomic_ref(*word_).store(1, std::memory_order_release); }
  const std::uint32_t* on_device() const { return on_device_; }

 private:
  struct Free {
    void operator()(std::uint32_t* word) const { cudaFreeHost(word); }
  };
  std::unique_ptr<std::uint32_t, Free> word_;
  const std::uint32_t* on_device_ = nullptr;
};

/// Another process's memory, as this one reaches it.
class OpenedMemory {
 public:
  explicit OpenedMemory(const cudaIpcMemHandle_t& handle) {
    void* memory = nullptr;
    cuda_check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
    memory_.reset(static_cast<std::byte*>(memory));
  }
  std::byte* data() const { return memory_.get(); }

 private:
  struct Close {
    void operator()(std::byte* memory) const { cudaIpcCloseMemHandle(memory); }
  };
  std::unique_ptr<std::byte, Close> memory_;
};

class IpcCommunicator final : public DeviceCommunicator {
 public:
  IpcCommunicator(std::unique_ptr<Communicator> host_transport, Progress& progress, std::string_view place)
      : DeviceCommunicator(std::move(host_transport)), progress_(progress) {
    const InCollective guard(progress_);
    agree(host(), [&] { own_ = on_gpu::Memory(cuda::PeerLayout::bytes(size())); });
    open_all(share_handles(), place);
    peers_.aborted = aborted_.on_device();
    peers_.rank = rank();
    peers_.ranks = size();
    host().barrier();  // before anybody pushes
  }
  ~IpcCommunicator() override {
    const InCollective guard(progress_);
    if (std::uncaught_exceptions() > 0) {
      aborted_.raise();
      return;  // the job is about to end, and what others still map goes with it
    }
    cudaDeviceSynchronize();  // under the watchdog, as all that waits in a collective
    opened_.clear();
    host().barrier();  // nobody maps what is freed
  }
  IpcCommunicator(const IpcCommunicator&) = delete;
  IpcCommunicator& operator=(const IpcCommunicator&) = delete;

  std::string_view transport() const override { return "ipc"; }

  void all_reduce(std::span<float> data, Stream stream) override {
    const InCollective guard(progress_);
    cuda::sum_over_peers(peers_, data.data(), std::ssize(data), stream);
  }
  void all_reduce(std::span<BF16> data, Stream stream) override {
    const InCollective guard(progress_);
    cuda::sum_over_peers(peers_, data.data(), std::ssize(data), stream);
  }

 private:
  std::vector<cudaIpcMemHandle_t> share_handles() {
    cudaIpcMemHandle_t mine{};
    agree(host(), [&] { cuda_check(cudaIpcGetMemHandle(&mine, own_.data()), "cudaIpcGetMemHandle"); });
    std::vector<cudaIpcMemHandle_t> all(size());
    host().all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), Stream{});
    return all;
  }
  void open_all(const std::vector<cudaIpcMemHandle_t>& handles, std::string_view place) {
    agree(host(), [&] {
      for (int r = 0; r < size(); ++r) {
        try {
          peers_.memory[r] = r == rank() ? own_.data() : opened_.emplace_back(handles[r]).data();
        } catch (const Error& error) {
          throw_bad_input(fmt::format("{}: found ipc, but the GPU of rank {} does not reach that of rank {}: {}", place,
                                      rank(), r, error.what()));
        }
      }
    });
  }

  Progress& progress_;
  Flag aborted_;
  on_gpu::Memory own_;
  std::vector<OpenedMemory> opened_;
  cuda::Peers peers_;
};

}  // namespace

std::unique_ptr<Communicator> make_ipc_communicator(std::unique_ptr<Communicator> host, const CudaOptions& gpu,
                                                    Progress& progress, std::string_view place) {
  if (host->size() == 1) {
    return host;
  }
  if (host->size() > cuda::kMostPeers) {
    throw AgreedError(ErrorKind::kBadInput, fmt::format("{}: found ipc with {} ranks, expected at most {}, or nccl",
                                                        place, host->size(), cuda::kMostPeers));
  }
  on_gpu::open_device(*host, gpu, place, "ipc");
  return std::make_unique<IpcCommunicator>(std::move(host), progress, place);
}

}  // namespace specdec
