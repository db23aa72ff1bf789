#include "parallel/hier_communicator.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "backend/error.h"

namespace specdec {

HierCommunicator::HierCommunicator(std::unique_ptr<Communicator> local, std::unique_ptr<Communicator> leaders, int rank,
                                   int size, int block, Progress& progress)
    : local_(std::move(local)),
      leaders_(std::move(leaders)),
      rank_(rank),
      size_(size),
      block_(block),
      progress_(progress) {
  check(std::has_single_bit(static_cast<unsigned>(block)) && (leaders_ != nullptr) == (rank % block == 0) &&
            local_->rank() == rank % block && local_->size() == std::min(block, size - rank / block * block),
        "hier: a run of ranks is no whole subtree");
}

template <typename T>
void HierCommunicator::reduce(std::span<T> data, Stream stream) {
  const InCollective guard(progress_);
  local_->all_reduce(data, stream);
  if (leaders_ != nullptr) {
    leaders_->all_reduce(data, stream);
  }
  local_->broadcast(std::as_writable_bytes(data), 0, stream);
}

template void HierCommunicator::reduce(std::span<float>, Stream);
template void HierCommunicator::reduce(std::span<BF16>, Stream);

std::span<const std::byte> HierCommunicator::gather_run(std::span<const std::byte> mine, Stream stream) {
  run_.resize(mine.size() * block_);
  local_->all_gather(mine, std::span(run_).first(mine.size() * local_->size()), stream);
  return run_;
}

void HierCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) {
  check(all.size() == mine.size() * size_, "all_gather: `all` must hold size() * mine.size() bytes");
  const InCollective guard(progress_);
  const std::span<const std::byte> run = gather_run(mine, stream);
  if (leaders_ != nullptr) {
    runs_.resize(run.size() * leaders_->size());
    leaders_->all_gather(run, runs_, stream);
    std::copy_n(runs_.begin(), all.size(), all.begin());
  }
  local_->broadcast(all, 0, stream);
}

void HierCommunicator::gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) {
  check(root >= 0 && root < size_, "gather: root outside the group");
  check(rank_ != root || all.size() == mine.size() * size_, "gather: `all` must hold size() * mine.size() bytes");
  const InCollective guard(progress_);
  const std::span<const std::byte> run = gather_run(mine, stream);
  const int root_run = root / block_;
  const bool with_root = rank_ / block_ == root_run;
  runs_.resize(with_root ? run.size() * ((size_ + block_ - 1) / block_) : 0);
  if (leaders_ != nullptr) {
    leaders_->gather(run, runs_, root_run, stream);
  }
  if (with_root && root % block_ != 0) {
    local_->broadcast(runs_, 0, stream);
  }
  if (rank_ == root) {
    std::copy_n(runs_.begin(), all.size(), all.begin());
  }
}

void HierCommunicator::broadcast(std::span<std::byte> data, int root, Stream stream) {
  check(root >= 0 && root < size_, "broadcast: root outside the group");
  const InCollective guard(progress_);
  if (rank_ / block_ == root / block_ && root % block_ != 0) {
    local_->broadcast(data, root % block_, stream);
  }
  if (leaders_ != nullptr) {
    leaders_->broadcast(data, root / block_, stream);
  }
  local_->broadcast(data, 0, stream);
}

void HierCommunicator::barrier() {
  const InCollective guard(progress_);
  local_->barrier();
  if (leaders_ != nullptr) {
    leaders_->barrier();
  }
  local_->barrier();
}

}  // namespace specdec
