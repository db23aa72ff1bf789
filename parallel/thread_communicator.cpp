#include "parallel/thread_communicator.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/error.h"
#include "parallel/tree.h"

namespace specdec {

/// What one rank lays open to the others between two rendezvous.
struct Offer {
  std::span<const std::byte> bytes;
};

struct ThreadGroup::Shared {
  Shared(int count, std::chrono::milliseconds limit) : size(count), deadline(limit), offers(count) {}

  /// Returns when every rank has called it as often as this one.
  void rendezvous() {
    std::unique_lock lock(mutex);
    require_whole();
    if (++arrived == size) {
      arrived = 0;
      ++generation;
      changed.notify_all();
      return;
    }
    const std::uint64_t mine = generation;
    if (!changed.wait_for(lock, deadline, [&] { return generation != mine || !failure.empty(); })) {
      fail(std::to_string(size - arrived) + " of " + std::to_string(size) +
           " ranks did not come to a collective within " + std::to_string(deadline.count()) + " ms");
    }
    if (generation == mine) {
      require_whole();
    }
  }

  /// Ends every wait, now and later; `mutex` is held.
  void fail(const std::string& why) {
    if (failure.empty()) {
      failure = "threads: " + why;
    }
    changed.notify_all();
  }

  void require_whole() const {
    if (!failure.empty()) {
      throw Error(ErrorKind::kPeerFailed, failure);
    }
  }

  const int size;
  const std::chrono::milliseconds deadline;
  std::vector<Offer> offers;   // [size], each written by its rank before a rendezvous and read by the others after it
  std::vector<std::byte> sum;  // all_reduce's result, each rank writes its own part
  std::vector<std::unique_ptr<Rank>> ranks;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  int arrived = 0;
  std::uint64_t generation = 0;
  std::string failure;  // why the group is no longer whole; empty while it is
};

class ThreadGroup::Rank final : public Communicator {
 public:
  Rank(Shared& shared, int rank) : shared_(shared), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return shared_.size; }
  std::string_view transport() const override { return "threads"; }

  void all_reduce(std::span<float> data, Stream /*stream*/) override { reduce(data); }
  void all_reduce(std::span<BF16> data, Stream /*stream*/) override { reduce(data); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream /*stream*/) override {
    exchange(mine, [&] { copy_all(mine.size(), all); });
  }

  void gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream /*stream*/) override {
    require_root(root);
    exchange(mine, [&] {
      if (rank_ == root) {
        copy_all(mine.size(), all);
      }
    });
  }

  void broadcast(std::span<std::byte> data, int root, Stream /*stream*/) override {
    require_root(root);
    exchange(data, [&] {
      const std::span<const std::byte> source = shared_.offers[root].bytes;
      check(source.size() == data.size(), "broadcast: ranks disagree about the size");
      if (rank_ != root) {
        std::copy(source.begin(), source.end(), data.begin());
      }
    });
  }

  void barrier() override { shared_.rendezvous(); }

 private:
  template <typename T>
  void reduce(std::span<T> data) {
    shared_.offers[rank_].bytes = std::as_bytes(data);
    if (rank_ == 0) {
      shared_.sum.resize(data.size_bytes());
    }
    shared_.rendezvous();
    const std::size_t begin = data.size() * rank_ / shared_.size;
    const std::size_t count = data.size() * (rank_ + 1) / shared_.size - begin;
    std::vector<std::span<const T>> leaves;
    for (const Offer& offer : shared_.offers) {
      check(offer.bytes.size() == data.size_bytes(), "all_reduce: ranks disagree about the size");
      leaves.emplace_back(reinterpret_cast<const T*>(offer.bytes.data()) + begin, count);
    }
    T* const sum = reinterpret_cast<T*>(shared_.sum.data());
    tree_sum(leaves, std::span(sum + begin, count));
    shared_.rendezvous();
    std::copy_n(sum, data.size(), data.begin());
    shared_.rendezvous();
  }

  void require_root(int root) const { check(root >= 0 && root < shared_.size, "root outside the group"); }

  /// `read` runs while every rank's bytes lie open.
  template <typename Read>
  void exchange(std::span<const std::byte> bytes, Read&& read) {
    shared_.offers[rank_].bytes = bytes;
    shared_.rendezvous();
    read();
    shared_.rendezvous();
  }

  void copy_all(std::size_t each, std::span<std::byte> all) const {
    check(all.size() == each * shared_.size, "gather: `all` must hold size() * mine.size() bytes");
    for (int r = 0; r < shared_.size; ++r) {
      const std::span<const std::byte> source = shared_.offers[r].bytes;
      check(source.size() == each, "gather: ranks disagree about the size");
      std::byte* to = all.data() + each * r;
      if (to != source.data()) {
        std::copy(source.begin(), source.end(), to);
      }
    }
  }

  Shared& shared_;
  int rank_;
};

ThreadGroup::ThreadGroup(int ranks, std::chrono::milliseconds deadline) {
  check(ranks >= 1, "ThreadGroup: no ranks");
  shared_ = std::make_unique<Shared>(ranks, deadline);
  for (int r = 0; r < ranks; ++r) {
    shared_->ranks.push_back(std::make_unique<Rank>(*shared_, r));
  }
}

ThreadGroup::~ThreadGroup() = default;

int ThreadGroup::size() const { return shared_->size; }

Communicator& ThreadGroup::communicator(int rank) { return *shared_->ranks.at(rank); }

void ThreadGroup::leave(int rank) {
  const std::scoped_lock lock(shared_->mutex);
  shared_->fail("rank " + std::to_string(rank) + " has left the group");
}

void run_ranks(int ranks, const std::function<void(Communicator&)>& body, std::chrono::milliseconds deadline) {
  ThreadGroup group(ranks, deadline);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::jthread> threads;
  threads.reserve(ranks);
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(group.communicator(r));
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (first == nullptr) {
          first = std::current_exception();
        }
      }
      group.leave(r);
    });
  }
  threads.clear();
  if (first != nullptr) {
    std::rethrow_exception(first);
  }
}

}  // namespace specdec
