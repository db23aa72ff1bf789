#include "parallel/mpi_communicator.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <type_traits>

#include "parallel/backoff.h"
#include "parallel/mpi_check.h"

namespace specdec {
namespace {

constexpr int kTag = 1;

int count_of(std::size_t elements) {
  check(elements <= INT_MAX, "mpi: a message of more than 2^31 - 1 elements");
  return static_cast<int>(elements);
}

/// Polls instead of blocking, so that the other ranks of an oversubscribed host get the processor.
void wait(std::span<MPI_Request> requests, int polls) {
  Backoff backoff(polls);
  for (int done = 0;;) {
    mpi_check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    if (done != 0) {
      return;
    }
    backoff.pause();
  }
}

int ranks_on_this_host(MPI_Comm comm) {
  MPI_Comm host = MPI_COMM_NULL;
  mpi_check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  int ranks = 0;
  mpi_check(MPI_Comm_size(host, &ranks), "MPI_Comm_size");
  MPI_Comm_free(&host);
  return ranks;
}

/// into = lower + upper, element by element; `into` is one of the two.
template <typename T>
void add(std::span<T> into, std::span<const T> other, bool other_is_upper) {
  if (other_is_upper) {
    for (std::size_t i = 0; i < into.size(); ++i) {
      into[i] = add_in_tree(into[i], other[i]);
    }
  } else {
    for (std::size_t i = 0; i < into.size(); ++i) {
      into[i] = add_in_tree(other[i], into[i]);
    }
  }
}

template <typename T>
MPI_Datatype type_of() {
  return std::is_same_v<T, float> ? MPI_FLOAT : MPI_UINT16_T;
}

/// MPI knows no bf16: its sum is an operation of ours.
void sum_bf16(void* other, void* into, int* count, MPI_Datatype* /*type*/) {
  const std::span<BF16> sum(static_cast<BF16*>(into), *count);
  add<BF16>(sum, std::span<const BF16>(static_cast<const BF16*>(other), *count), false);
}

}  // namespace

struct MpiCommunicator::Handle {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Op sum_of_bf16 = MPI_OP_NULL;
  std::vector<MPI_Request> requests;  // scratch, so that a call allocates nothing

  template <typename T>
  void send(std::span<const T> data, int to, MPI_Request& request) const {
    mpi_check(MPI_Isend(data.data(), count_of(data.size()), type_of<T>(), to, kTag, comm, &request), "MPI_Isend");
  }
  template <typename T>
  void receive(std::span<T> data, int from, MPI_Request& request) const {
    mpi_check(MPI_Irecv(data.data(), count_of(data.size()), type_of<T>(), from, kTag, comm, &request), "MPI_Irecv");
  }
};

MpiCommunicator::MpiCommunicator(int handle, MpiReduction reduction, Progress& progress, std::size_t large_bytes)
    : handle_(std::make_unique<Handle>()), reduction_(reduction), progress_(progress), large_bytes_(large_bytes) {
  const InCollective guard(progress_);
  mpi_check(MPI_Comm_dup(MPI_Comm_f2c(handle), &handle_->comm), "MPI_Comm_dup");
  mpi_check(MPI_Comm_set_errhandler(handle_->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi_check(MPI_Comm_rank(handle_->comm, &rank_), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(handle_->comm, &size_), "MPI_Comm_size");
  mpi_check(MPI_Op_create(sum_bf16, 1, &handle_->sum_of_bf16), "MPI_Op_create");
  steps_ = tree_steps(rank_, size_);
  polls_ = Backoff::polls_for(ranks_on_this_host(handle_->comm));
  Backoff::sharpen_timer();
}

MpiCommunicator::~MpiCommunicator() {
  MPI_Op_free(&handle_->sum_of_bf16);
  MPI_Comm_free(&handle_->comm);
}

void MpiCommunicator::all_reduce(std::span<float> data, Stream /*stream*/) { reduce(data); }

void MpiCommunicator::all_reduce(std::span<BF16> data, Stream /*stream*/) { reduce(data); }

template <typename T>
void MpiCommunicator::reduce(std::span<T> data) {
  const InCollective guard(progress_);
  if (reduction_ == MpiReduction::kLibrary) {
    const MPI_Op op = std::is_same_v<T, float> ? MPI_SUM : handle_->sum_of_bf16;
    mpi_check(MPI_Allreduce(MPI_IN_PLACE, data.data(), count_of(data.size()), type_of<T>(), op, handle_->comm),
              "MPI_Allreduce");
  } else if (data.size_bytes() >= large_bytes_ && std::has_single_bit(static_cast<unsigned>(size_))) {
    reduce_by_halving(data);
  } else {
    reduce_by_doubling(data);
  }
}

template <typename T>
std::span<T> MpiCommunicator::scratch(std::size_t size) {
  received_.resize(std::max(received_.size(), size * sizeof(T)));
  return {reinterpret_cast<T*>(received_.data()), size};
}

template <typename T>
void MpiCommunicator::reduce_by_doubling(std::span<T> data) {
  const std::span<T> received = scratch<T>(data.size());
  std::vector<MPI_Request>& requests = handle_->requests;
  for (const TreeStep& step : steps_) {
    requests.assign(step.destinations.size() + 1, MPI_REQUEST_NULL);
    handle_->receive<T>(received, step.source, requests.back());
    for (std::size_t i = 0; i < step.destinations.size(); ++i) {
      handle_->send<T>(data, step.destinations[i], requests[i]);
    }
    wait(requests, polls_);
    add<T>(data, received, step.source_is_upper);
  }
}

template <typename T>
void MpiCommunicator::reduce_by_halving(std::span<T> data) {
  const std::span<T> room = scratch<T>(data.size() / 2 + 1);
  // Level by level each rank keeps half of what it has and gives the other half away; `kept` remembers the halves for
  // the way back.
  struct Halves {
    std::span<T> mine;
    std::span<T> theirs;
    int partner;
  };
  std::vector<Halves> kept;
  std::span<T> range = data;
  std::vector<MPI_Request>& requests = handle_->requests;
  requests.assign(2, MPI_REQUEST_NULL);
  for (int stride = 1; stride < size_; stride *= 2) {
    const bool upper = (rank_ & stride) != 0;
    const std::span<T> low = range.first(range.size() / 2);
    const std::span<T> high = range.subspan(range.size() / 2);
    const Halves halves{upper ? high : low, upper ? low : high, rank_ ^ stride};
    const std::span<T> received = room.first(halves.mine.size());
    handle_->receive<T>(received, halves.partner, requests[0]);
    handle_->send<T>(halves.theirs, halves.partner, requests[1]);
    wait(requests, polls_);
    add<T>(halves.mine, received, !upper);
    range = halves.mine;
    kept.push_back(halves);
  }
  std::reverse(kept.begin(), kept.end());
  for (const Halves& halves : kept) {
    handle_->receive<T>(halves.theirs, halves.partner, requests[0]);
    handle_->send<T>(halves.mine, halves.partner, requests[1]);
    wait(requests, polls_);
  }
}

void MpiCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream /*stream*/) {
  check(all.size() == mine.size() * size_, "all_gather: `all` must hold size() * mine.size() bytes");
  const InCollective guard(progress_);
  const int count = count_of(mine.size());
  MPI_Request request = MPI_REQUEST_NULL;
  const bool in_place = mine.data() == all.data() + mine.size() * rank_;
  mpi_check(MPI_Iallgather(in_place ? MPI_IN_PLACE : mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE,
                           handle_->comm, &request),
            "MPI_Iallgather");
  wait({&request, 1}, polls_);
}

void MpiCommunicator::gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream /*stream*/) {
  check(root >= 0 && root < size_, "gather: root outside the group");
  check(rank_ != root || all.size() == mine.size() * size_, "gather: `all` must hold size() * mine.size() bytes");
  const InCollective guard(progress_);
  const int count = count_of(mine.size());
  MPI_Request request = MPI_REQUEST_NULL;
  const bool in_place = rank_ == root && mine.data() == all.data() + mine.size() * rank_;
  mpi_check(MPI_Igather(in_place ? MPI_IN_PLACE : mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, root,
                        handle_->comm, &request),
            "MPI_Igather");
  wait({&request, 1}, polls_);
}

void MpiCommunicator::broadcast(std::span<std::byte> data, int root, Stream /*stream*/) {
  check(root >= 0 && root < size_, "broadcast: root outside the group");
  const InCollective guard(progress_);
  MPI_Request request = MPI_REQUEST_NULL;
  mpi_check(MPI_Ibcast(data.data(), count_of(data.size()), MPI_BYTE, root, handle_->comm, &request), "MPI_Ibcast");
  wait({&request, 1}, polls_);
}

void MpiCommunicator::barrier() {
  const InCollective guard(progress_);
  MPI_Request request = MPI_REQUEST_NULL;
  mpi_check(MPI_Ibarrier(handle_->comm, &request), "MPI_Ibarrier");
  wait({&request, 1}, polls_);
}

}  // namespace specdec
