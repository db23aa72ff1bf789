// Nothing on the way from one token to the next takes memory from the heap: buffers grow to the largest pass and round of a job, and are
// then used again. Shown for both families, one and two threads, bf16 and fp32, on one rank (`self`) with the cpu backend:
//   a pass    Transformer::forward, target with 1 and 5 rows, draft with 1 row, after one prefill, over many lengths of the context;
//   a round   all of Coordinator's loop, draft, broadcast, score, decide, accept, text (with a tokenizer for Llama), in the second sequence of
//             a job, greedy, with temperature alone, and with top-k and top-p.
// Half of them with a trace, from its first events until it is full. Nor does a pass of one thread make a system call.
// Not shown: other ranks' transports, the sink (the journal and the reports keep what they are told), stop strings, and rounds whose text is longer than
// 16 bytes a token.

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "backend/factory.h"
#include "models/checkpoint.h"
#include "models/transformer.h"
#include "parallel/self_communicator.h"
#include "parallel/timed_communicator.h"
#include "runtime/coordinator.h"
#include "runtime/model_drafter.h"
#include "tests/allocation/counted_malloc.h"
#include "tests/support/random_model.h"

namespace specdec::tests {
namespace {

constexpr std::int64_t kDrafted = 4;

/// Keeps the optimiser from pairing a malloc with its free.
void* volatile kept;

TEST(CountedMalloc, CountsEveryWayToAllocate) {
  const auto counts = [](auto&& allocate) {
    const std::int64_t before = allocations();
    kept = allocate();
    const std::int64_t counted = allocations() - before;
    std::free(kept);
    return counted;
  };
  EXPECT_EQ(counts([] { return std::malloc(100); }), 1);
  EXPECT_EQ(counts([] { return std::calloc(10, 10); }), 1);
  EXPECT_EQ(counts([] { return std::realloc(nullptr, 100); }), 1);
  EXPECT_EQ(counts([] { return std::aligned_alloc(64, 128); }), 1);
  EXPECT_EQ(counts([] { return ::operator new(100); }), 1);
  EXPECT_EQ(counts([] { return ::operator new (128, std::align_val_t{64}); }), 1);
  EXPECT_EQ(counts([]() -> void* { return nullptr; }), 0);
}

/// A model on one rank.
struct Model {
  Model(const std::filesystem::path& directory, Backend& backend, Communicator& group, DType dtype, Tracer* tracer)
      : checkpoint(directory),
        transformer(load_model_config(directory), checkpoint, backend, group,
                    {.dtype = dtype, .max_rows = kDrafted + 1, .prefill_rows = 16, .tracer = tracer}) {}
  Checkpoint checkpoint;
  Transformer transformer;
};

struct Subject {
  std::string name;
  DType dtype = DType::kBF16;
  int threads = 1;
  bool traced = false;
};

std::string name_of(const Subject& subject) {
  return subject.name + "_" + std::string(specdec::name_of(subject.dtype)) + "_" + std::to_string(subject.threads) +
         "threads" + (subject.traced ? "_traced" : "");
}

void PrintTo(const Subject& subject, std::ostream* out) { *out << name_of(subject); }

class Allocations : public ::testing::TestWithParam<Subject> {
 protected:
  Allocations() {
    const Subject& subject = GetParam();
    std::filesystem::path target_directory = std::filesystem::path(SPECDEC_SOURCE_DIR) / "assets/manpy-2m";
    std::filesystem::path draft_directory = std::filesystem::path(SPECDEC_SOURCE_DIR) / "assets/manpy-0.5m";
    if (subject.name == "llama") {
      tokenizer_ = load_tokenizer(target_directory);
    } else {
      target_directory = directory_.path() / "target";
      draft_directory = directory_.path() / "draft";
      write_random_model({.family = "gpt2", .context = 256}, target_directory);
      write_random_model({.family = "gpt2", .layers = 1, .context = 256, .noise = 0.3F}, draft_directory);
    }
    backend_ = make_backend({.name = "cpu", .threads = subject.threads});
    target_ = std::make_unique<Model>(target_directory, *backend_, group_, subject.dtype, tracer());
    draft_ = std::make_unique<Model>(draft_directory, *backend_, self_, subject.dtype, nullptr);
    std::iota(prompt_.begin(), prompt_.end(), 10);
  }

  /// Allocations of one pass of `rows` rows after what `cache` holds; the first row stands afterwards.
  std::int64_t pass(Transformer& model, KvCache& cache, std::int64_t rows, LogitRows logits) {
    std::vector<std::int32_t> position(rows);
    std::vector<std::int32_t> parent(rows);
    std::iota(position.begin(), position.end(), static_cast<std::int32_t>(cache.committed()));
    std::iota(parent.begin(), parent.end(), -1);
    const std::int64_t before = allocations();
    model.forward({std::span(prompt_).first(rows), position, parent}, cache, logits, Stream{});
    cache.commit_prefix(1);
    return allocations() - before;
  }

  Tracer* tracer() { return GetParam().traced ? &tracer_ : nullptr; }

  static constexpr std::size_t kEvents = 5000;
  Tracer tracer_{kEvents};
  const TemporaryDirectory directory_;
  SelfCommunicator self_;
  TimedCommunicator group_{self_, tracer()};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> target_;
  std::unique_ptr<Model> draft_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<Token> prompt_ = std::vector<Token>(40);
};

TEST_P(Allocations, NoneInAPass) {
  KvCache target_cache = target_->transformer.make_cache();
  KvCache draft_cache = draft_->transformer.make_cache();
  target_->transformer.prefill(prompt_, target_cache, Stream{});
  draft_->transformer.prefill(prompt_, draft_cache, Stream{});
  // From 40 tokens over many blocks of keys.
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(pass(target_->transformer, target_cache, 1, LogitRows::kAll), 0) << "target, 1 row, pass " << i;
    EXPECT_EQ(pass(target_->transformer, target_cache, kDrafted + 1, LogitRows::kAll), 0)
        << "target, 5 rows, pass " << i;
    EXPECT_EQ(pass(draft_->transformer, draft_cache, 1, LogitRows::kLast), 0) << "draft, 1 row, pass " << i;
  }
}

class OneThread : public Allocations {};

/// From here on the kernel ends the process for any system call but exit. (SECCOMP_MODE_STRICT would take the clock from it too.)
bool forbid_system_calls() {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog program = {.len = std::size(steps), .filter = steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// How a process ends that does `work` and may make no system call.
int status_without_system_calls(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!forbid_system_calls()) {
      ::_exit(3);
    }
    work();
    ::syscall(SYS_exit, 0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_P(OneThread, MakesNoSystemCallInAPass) {
  const int caught = status_without_system_calls([] { ::syscall(SYS_getppid); });
  ASSERT_TRUE(WIFSIGNALED(caught) && WTERMSIG(caught) == SIGSYS) << caught;
  ASSERT_EQ(status_without_system_calls([] {}), 0);

  KvCache target_cache = target_->transformer.make_cache();
  KvCache draft_cache = draft_->transformer.make_cache();
  target_->transformer.prefill(prompt_, target_cache, Stream{});
  draft_->transformer.prefill(prompt_, draft_cache, Stream{});
  for (const std::int64_t rows : {std::int64_t{1}, kDrafted + 1}) {
    EXPECT_EQ(status_without_system_calls([&] {
                for (int i = 0; i < 20; ++i) {
                  pass(target_->transformer, target_cache, rows, LogitRows::kAll);
                }
              }),
              0)
        << "target, rows: " << rows;
  }
  EXPECT_EQ(status_without_system_calls([&] {
              for (int i = 0; i < 20; ++i) {
                pass(draft_->transformer, draft_cache, 1, LogitRows::kLast);
              }
            }),
            0)
      << "draft";
}

/// Notes what was allocated from one round's tokens to the next.
class CountingSink final : public OutputSink {
 public:
  CountingSink() { per_round_.reserve(1000); }
  void begin_output(const std::string&, std::span<const Token>) override {}
  void prefilled(double) override { last_ = allocations(); }
  void append(std::span<const Token>, const std::string&, const LoopRecord& loop) override {
    per_round_.push_back(allocations() - last_);
    accepted_ += loop.accepted;
    rejected_ += loop.reached - loop.accepted;
    last_ = allocations();
  }
  void finish_output(const std::string&, const std::string&) override {}

  const std::vector<std::int64_t>& per_round() const { return per_round_; }
  std::int64_t accepted() const { return accepted_; }
  std::int64_t rejected() const { return rejected_; }

 private:
  std::vector<std::int64_t> per_round_;
  std::int64_t last_ = 0;
  std::int64_t accepted_ = 0;
  std::int64_t rejected_ = 0;
};

TEST_P(Allocations, NoneInARound) {
  for (const SamplingParams& sampling : {SamplingParams{.temperature = 0}, SamplingParams{.temperature = 1},
                                         SamplingParams{.temperature = 0.8F, .top_k = 50, .top_p = 0.95F}}) {
    const TokenVerifier verifier;
    Decision decision(target_->transformer.head(), true, sampling, verifier, 1);
    Scorer scorer(target_->transformer, group_, decision, 7, tracer());  // 7: as with parallel.agreement
    ModelDrafter drafter(draft_->transformer, sampling, 1, 1, tracer());
    Progress progress;
    RoundChannel channel(self_, progress, kDrafted);
    FixedDraftLength length(kDrafted);
    Coordinator coordinator(
        scorer, channel, &drafter, length, tokenizer_.get(), {.max_new_tokens = 120}, [] { return false; }, tracer());
    CountingSink warm_up;
    coordinator.generate(0, "", prompt_, warm_up);
    CountingSink sink;
    coordinator.generate(1, "", prompt_, sink);

    const std::string what = "temperature " + std::to_string(sampling.temperature);
    EXPECT_GT(sink.accepted(), 0) << what;
    EXPECT_GT(sink.rejected(), 0) << what;
    for (std::size_t round = 0; round < sink.per_round().size(); ++round) {
      EXPECT_EQ(sink.per_round()[round], 0) << what << ", round " << round;
    }
  }
  EXPECT_EQ(tracer_.events().size(), GetParam().traced ? kEvents : 0);
  EXPECT_EQ(tracer_.dropped() > 0, GetParam().traced);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Allocations,
                         ::testing::Values(Subject{"llama", DType::kBF16, 1, true}, Subject{"llama", DType::kF32, 2},
                                           Subject{"gpt2", DType::kBF16, 2, true}, Subject{"gpt2", DType::kF32, 1}),
                         [](const auto& value) { return name_of(value.param); });
INSTANTIATE_TEST_SUITE_P(Cpu, OneThread,
                         ::testing::Values(Subject{"llama", DType::kBF16}, Subject{"llama", DType::kInt8},
                                           Subject{"gpt2", DType::kF32}),
                         [](const auto& value) { return name_of(value.param); });

}  // namespace
}  // namespace specdec::tests
