#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backend/factory.h"
#include "models/transformer.h"
#include "parallel/communicator.h"
#include "parallel/timed_communicator.h"

namespace specdec {

/// A model, or one rank's part of it, passes of which are timed.
class TimedModel {
 public:
  /// As many tokens as one of `contexts` says come before what a pass scores, `most_rows` rows at most. `group` and `backend` outlive it.
  TimedModel(const ModelConfig& shape, std::unique_ptr<TensorSource> weights, DType dtype, Backend& backend,
             const std::vector<std::int64_t>& contexts, std::int64_t most_rows, Communicator& group);

  /// Fills a cache for each context. Collective.
  void prefill();
  /// Seconds of a pass over `rows` rows after the tokens of a context, less its all-reduces. Collective.
  double pass(std::size_t rows, std::size_t context = 0);
  Transformer& model() { return model_; }

 private:
  Backend& backend_;
  TimedCommunicator group_;
  std::unique_ptr<TensorSource> weights_;
  Transformer model_;
  struct Sequence {
    KvCache cache;
    std::vector<Token> before;
    std::vector<std::int32_t> position;  ///< of what is scored
  };
  std::vector<Sequence> sequences_;  ///< of the contexts
  std::vector<std::int32_t> parent_;
  std::vector<Token> scored_;
};

/// Rank 0 of several whose passes are timed: the others are threads with cores of their own that do their parts meanwhile, over shared memory as in a job, and wait in between while rank 0
/// does something else. Where there are not as many cores they are not there, and sums are rank 0's own part.
class TimedRanks {
 public:
  using Make = std::function<std::unique_ptr<TimedModel>(Communicator& group, Backend& backend)>;

  /// `make` is called on the thread of each rank. The caller is bound to cores of its own as long as this lives. A rank that throws in a pass, or makes no progress
  /// for `deadline` seconds while others wait, ends this process (parallel/thread_watch.h).
  TimedRanks(int ranks, int cores, const BackendOptions& options, double deadline, const Make& make);
  TimedRanks(const TimedRanks&) = delete;
  TimedRanks& operator=(const TimedRanks&) = delete;
  ~TimedRanks();

  Backend& backend() { return *backend_; }
  /// Has the others wait anew, as they do in a job while rank 0 drafts, decides and begins a round: awake at first, which the cores of some machines notice that rank 0 has not.
  void stir();
  /// As TimedModel::pass(), by all ranks.
  double pass(std::size_t rows, std::size_t context = 0);
  /// Of the seconds of the last pass(), those that rank 0 spent on all else than products. Nothing of a backend that does its work later.
  std::optional<double> beside_products() const;

 private:
  class Others;
  class Bound;

  struct Order;
  class ProductClock;

  double do_all(const Order& order);

  std::unique_ptr<Bound> bound_;  ///< before the backend, whose threads are bound as it is
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ProductClock> clock_;  ///< what the model computes with, if a host does
  std::optional<double> beside_products_;
  std::unique_ptr<Others> others_;
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<TimedModel> model_;
};

}  // namespace specdec
