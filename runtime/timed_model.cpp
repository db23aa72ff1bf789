#include "runtime/timed_model.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <future>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "backend/cpu/thread_pool.h"
#include "parallel/progress.h"
#include "parallel/self_communicator.h"
#include "parallel/shared_region.h"
#include "parallel/shm_communicator.h"
#include "parallel/thread_watch.h"
#include "runtime/clock.h"

namespace specdec {
namespace {

/// Rank 0 of several of which the others are not there: sums are its own part, whose values nobody looks at.
class FirstOf final : public Communicator {
 public:
  explicit FirstOf(int ranks) : ranks_(ranks) {}
  int rank() const override { return 0; }
  int size() const override { return ranks_; }
  std::string_view transport() const override { return "none"; }
  void all_reduce(std::span<float>, Stream) override {}
  void all_reduce(std::span<BF16>, Stream) override {}
  void all_gather(std::span<const std::byte>, std::span<std::byte>, Stream) override {}
  void gather(std::span<const std::byte>, std::span<std::byte>, int, Stream) override {}
  void broadcast(std::span<std::byte>, int, Stream) override {}
  void barrier() override {}

 private:
  int ranks_;
};

}  // namespace

TimedModel::TimedModel(const ModelConfig& shape, std::unique_ptr<TensorSource> weights, DType dtype, Backend& backend,
                       std::int64_t context, std::int64_t most_rows, Communicator& group)
    : backend_(backend),
      group_(group),
      weights_(std::move(weights)),
      model_(shape, *weights_, backend, group_, {.dtype = dtype, .max_rows = most_rows}),
      cache_(model_.make_cache(context + most_rows)),
      position_(static_cast<std::size_t>(most_rows)),
      parent_(static_cast<std::size_t>(most_rows)),
      tokens_(static_cast<std::size_t>(context + most_rows)) {
  std::iota(position_.begin(), position_.end(), static_cast<std::int32_t>(context));
  std::iota(parent_.begin(), parent_.end(), -1);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    tokens_[i] = static_cast<Token>(static_cast<std::int64_t>(10 + i) % shape.vocabulary);
  }
}

void TimedModel::prefill() {
  const std::size_t context = tokens_.size() - position_.size();
  if (context > 0) model_.prefill(std::span(tokens_).first(context), cache_, Stream{});
}

double TimedModel::pass(std::size_t rows) {
  const double waited = group_.totals().all_reduce.seconds;
  const double start = now_seconds();
  model_.forward({std::span(tokens_).last(position_.size()).first(rows), std::span(position_).first(rows),
                  std::span(parent_).first(rows)},
                 cache_, LogitRows::kAll, Stream{});
  backend_.synchronize(Stream{});
  const double seconds = now_seconds() - start;
  cache_.commit_prefix(0);
  return seconds - (group_.totals().all_reduce.seconds - waited);
}

/// The calling thread, bound to the cores that are dealt to a rank, and back.
class TimedRanks::Bound {
 public:
  Bound(const std::vector<int>& cores, int rank, int ranks) {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t mine;
    CPU_ZERO(&mine);
    const auto count = static_cast<std::ptrdiff_t>(cores.size());
    std::for_each(cores.begin() + count * rank / ranks, cores.begin() + count * (rank + 1) / ranks,
                  [&](int core) { CPU_SET(core, &mine); });
    sched_setaffinity(0, sizeof mine, &mine);
  }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
  ~Bound() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

class TimedRanks::Others {
 public:
  /// Beside numbers of rows.
  static constexpr std::int64_t kPrefill = 0;
  static constexpr std::int64_t kLeave = -1;

  Others(int ranks, int cores, double deadline)
      : region_(std::make_shared<SharedRegion>(SharedRegion::of_this_process(ShmCommunicator::region_bytes(ranks)))),
        progress_(static_cast<std::size_t>(ranks)),
        watch_(progress_, deadline) {
    for (int rank = 0; rank < ranks; ++rank) {
      groups_.push_back(std::make_unique<ShmCommunicator>(
          region_, rank, ranks, progress_[static_cast<std::size_t>(rank)], ShmOptions{.cores = cores}));
    }
  }
  Others(const Others&) = delete;
  Others& operator=(const Others&) = delete;
  ~Others() {
    if (!threads_.empty()) command(kLeave);
    for (std::thread& thread : threads_) thread.join();
  }

  Communicator& first() { return *groups_.front(); }

  /// Rethrows what keeps any of them from being made; then they all are, and wait.
  void start(const std::vector<int>& cores, const BackendOptions& options, const Make& make) {
    const auto ranks = static_cast<int>(groups_.size());
    std::vector<std::promise<void>> made(groups_.size());
    for (int rank = 1; rank < ranks; ++rank) {
      threads_.emplace_back([&, rank] {
        const Bound bound(cores, rank, ranks);
        const auto index = static_cast<std::size_t>(rank);
        work(*groups_[index], progress_[index], options, make, made[index]);
      });
    }
    std::exception_ptr failed;
    for (std::size_t rank = 1; rank < made.size(); ++rank) {
      try {
        made[rank].get_future().get();
      } catch (...) {
        failed = std::current_exception();
      }
    }
    if (failed) std::rethrow_exception(failed);
  }

  /// A rank's part of what command() says.
  static double obey(TimedModel& model, std::int64_t rows) {
    if (rows > 0) return model.pass(static_cast<std::size_t>(rows));
    model.prefill();
    return 0;
  }
  /// Of a rank that others wait for.
  static double obey(int rank, TimedModel& model, std::int64_t rows) {
    try {
      return obey(model, rows);
    } catch (...) {
      ThreadWatch::fail(rank, std::current_exception());
    }
  }

  /// Has them do a pass over `rows` rows, or what is said above.
  void command(std::int64_t rows) {
    const AsideCollectives aside(progress_.front());
    first().broadcast(std::as_writable_bytes(std::span(&rows, 1)), 0, Stream{});
  }

 private:
  static void work(Communicator& group, Progress& progress, const BackendOptions& options, const Make& make,
                   std::promise<void>& made) {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<TimedModel> model;
    try {
      backend = make_backend(options);
      model = make(group, *backend);
    } catch (...) {
      made.set_exception(std::current_exception());
    }
    const bool is_made = model != nullptr;
    if (is_made) made.set_value();  // from here on it is gone
    for (std::int64_t rows = kPrefill; rows != kLeave;) {
      {
        const AsideCollectives aside(progress, /*idle=*/true);
        group.broadcast(std::as_writable_bytes(std::span(&rows, 1)), 0, Stream{});
      }
      if (!is_made || rows == kLeave) continue;
      obey(group.rank(), *model, rows);
    }
  }

  std::shared_ptr<SharedRegion> region_;
  std::vector<Progress> progress_;
  ThreadWatch watch_;
  std::vector<std::unique_ptr<ShmCommunicator>> groups_;
  std::vector<std::thread> threads_;
};

TimedRanks::TimedRanks(int ranks, int cores, const BackendOptions& options, double deadline, const Make& make) {
  const std::vector<int> own = own_cores();
  if (ranks > 1 && ranks <= std::min(cores, static_cast<int>(own.size()))) {
    bound_ = std::make_unique<Bound>(own, 0, ranks);
    others_ = std::make_unique<Others>(ranks, static_cast<int>(own.size()), deadline);
  } else if (ranks > 1) {
    group_ = std::make_unique<FirstOf>(ranks);
  } else {
    group_ = std::make_unique<SelfCommunicator>();
  }
  backend_ = make_backend(options);
  model_ = make(others_ ? others_->first() : *group_, *backend_);
  if (others_) others_->start(own, options, make);
  do_all(Others::kPrefill);
}

TimedRanks::~TimedRanks() = default;

double TimedRanks::pass(std::size_t rows) { return do_all(static_cast<std::int64_t>(rows)); }

double TimedRanks::do_all(std::int64_t rows) {
  if (!others_) return Others::obey(*model_, rows);
  others_->command(rows);
  return Others::obey(0, *model_, rows);
}

}  // namespace specdec
