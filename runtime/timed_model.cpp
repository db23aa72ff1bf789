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
#include "backend/forwarding_backend.h"
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
                       const std::vector<std::int64_t>& contexts, std::int64_t most_rows, Communicator& group)
    : backend_(backend),
      group_(group),
      weights_(std::move(weights)),
      model_(shape, *weights_, backend, group_, {.dtype = dtype, .max_rows = most_rows}),
      parent_(static_cast<std::size_t>(most_rows)),
      scored_(static_cast<std::size_t>(most_rows)) {
  std::iota(parent_.begin(), parent_.end(), -1);
  const auto fill = [&](std::vector<Token>& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<Token>(static_cast<std::int64_t>(10 + i) % shape.vocabulary);
    }
  };
  fill(scored_);
  for (const std::int64_t context : contexts) {
    Sequence sequence = {.cache = model_.make_cache(context + most_rows),
                         .before = std::vector<Token>(static_cast<std::size_t>(context)),
                         .position = std::vector<std::int32_t>(static_cast<std::size_t>(most_rows))};
    fill(sequence.before);
    std::iota(sequence.position.begin(), sequence.position.end(), static_cast<std::int32_t>(context));
    sequences_.push_back(std::move(sequence));
  }
}

void TimedModel::prefill() {
  for (Sequence& sequence : sequences_) {
    if (!sequence.before.empty()) model_.prefill(sequence.before, sequence.cache, Stream{});
  }
}

double TimedModel::pass(std::size_t rows, std::size_t context) {
  Sequence& sequence = sequences_.at(context);
  const double waited = group_.totals().all_reduce.seconds;
  const double start = now_seconds();
  model_.forward(
      {std::span(scored_).first(rows), std::span(sequence.position).first(rows), std::span(parent_).first(rows)},
      sequence.cache, LogitRows::kAll, Stream{});
  backend_.synchronize(Stream{});
  const double seconds = now_seconds() - start;
  sequence.cache.commit_prefix(0);
  return seconds - (group_.totals().all_reduce.seconds - waited);
}

/// What rank 0 has all do.
struct TimedRanks::Order {
  enum class What : std::uint8_t { kPrefill, kPass, kStir, kLeave };
  What what = What::kPrefill;
  std::size_t rows = 0;
  std::size_t context = 0;
};

/// Seconds that products take, with what is fused with them.
class TimedRanks::ProductClock final : public ObservingBackend {
 public:
  using ObservingBackend::ObservingBackend;
  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream stream) override {
    timed([&] { ObservingBackend::matmul(weight, x, y, stream); });
  }
  void matmul_silu_mul(const PackedLinear& weight, ConstRows x, const float* bias, Rows gate_up, Rows out,
                       Stream stream) override {
    timed([&] { ObservingBackend::matmul_silu_mul(weight, x, bias, gate_up, out, stream); });
  }
  double seconds() const { return seconds_; }

 private:
  template <typename Product>
  void timed(const Product& product) {
    const double start = now_seconds();
    product();
    seconds_ += now_seconds() - start;
  }

  double seconds_ = 0;
};

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
    if (!threads_.empty()) command({.what = Order::What::kLeave});
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
  static double obey(TimedModel& model, const Order& order) {
    if (order.what == Order::What::kPass) return model.pass(order.rows, order.context);
    if (order.what == Order::What::kPrefill) model.prefill();
    return 0;
  }
  /// Of a rank that others wait for.
  static double obey(int rank, TimedModel& model, const Order& order) {
    try {
      return obey(model, order);
    } catch (...) {
      ThreadWatch::fail(rank, std::current_exception());
    }
  }

  /// Has them do it.
  void command(Order order) {
    const AsideCollectives aside(progress_.front());
    first().broadcast(std::as_writable_bytes(std::span(&order, 1)), 0, Stream{});
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
    for (Order order; order.what != Order::What::kLeave;) {
      {
        const AsideCollectives aside(progress, /*idle=*/true);
        group.broadcast(std::as_writable_bytes(std::span(&order, 1)), 0, Stream{});
      }
      if (!is_made || order.what == Order::What::kLeave) continue;
      obey(group.rank(), *model, order);
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
  // A device does its work later, and what it fuses would be timed in parts.
  if (backend_->on_host()) clock_ = std::make_unique<ProductClock>(*backend_);
  model_ = make(others_ ? others_->first() : *group_, clock_ ? *clock_ : *backend_);
  if (others_) others_->start(own, options, make);
  do_all({.what = Order::What::kPrefill});
}

TimedRanks::~TimedRanks() = default;

void TimedRanks::stir() { do_all({.what = Order::What::kStir}); }

double TimedRanks::pass(std::size_t rows, std::size_t context) {
  const double before = clock_ ? clock_->seconds() : 0;
  const double seconds = do_all({.what = Order::What::kPass, .rows = rows, .context = context});
  if (clock_) beside_products_ = seconds - (clock_->seconds() - before);
  return seconds;
}

std::optional<double> TimedRanks::beside_products() const { return beside_products_; }

double TimedRanks::do_all(const Order& order) {
  if (!others_) return Others::obey(*model_, order);
  others_->command(order);
  return Others::obey(0, *model_, order);
}

}  // namespace specdec
