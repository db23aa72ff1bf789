#include "parallel/watchdog.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

namespace specdec {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeat{100};
/// After SIGTERM, how long a death may take to show: mpirun sends SIGTERM because of a death too, and the death is the
/// news then.
constexpr milliseconds kDeathShows{100};
/// After SIGTERM, how long the program may take to end by itself; mpirun sends SIGKILL after a second.
constexpr milliseconds kInterruptGrace{700};
/// At SIGTERM, the silence in seconds that is the news, as a death is: mpirun that has lost a host sends SIGTERM too, before the
/// deadline has passed (after 4 s, docs/several-hosts.md). Twenty heartbeats.
constexpr double kCutOff = 2.0;
/// How long workers stay behind, so that rank 0's exit code is the first that mpirun sees.
constexpr milliseconds kLeaderFirst{300};
/// After an error that a rank has thrown because another one failed, how long the other's death may take to show.
constexpr milliseconds kErrorGrace{200};
/// After one rank has found that it differs from rank 0, how long the others may take to compare.
constexpr milliseconds kCompareGrace{2000};
/// How long a worker that has thrown waits for rank 0 to end the job.
constexpr milliseconds kLeaderAnswers{5000};
/// A callback that hangs must not keep the job: SIGALRM kills the process then.
constexpr unsigned kCallbackSeconds = 5;

double seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

const char* name_of(RankState state) {
  switch (state) {
    case RankState::kComputing:
      return "computing";
    case RankState::kWaiting:
      return "waiting";
    case RankState::kLeaving:
      return "leaving";
    case RankState::kIdle:
      return "idle";
  }
  return "?";
}

/// Who speaks when rank 0 is lost: the first rank on another host, since rank 0's may be cut off from mpirun too; else rank 1.
int deputy(const std::vector<std::string>& hosts) {
  const auto elsewhere = std::ranges::find_if(hosts, [&](const std::string& host) { return host != hosts.front(); });
  return elsewhere == hosts.end() ? 1 : static_cast<int>(elsewhere - hosts.begin());
}

std::string signal_name(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

}  // namespace

Watchdog::Watchdog(JobSignals& signals, Progress& progress, std::string program, int rank,
                   std::vector<std::string> hosts, std::vector<Peer> peers)
    : signals_(signals),
      progress_(progress),
      program_(std::move(program)),
      rank_(rank),
      hosts_(std::move(hosts)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      now_(Clock::now()),
      next_beat_(now_) {
  check(wake_ >= 0, "watchdog: cannot open an eventfd");
  if (leader()) {
    watched_.push_back({.rank = 0, .peer = {}, .progress = {}, .heard = now_, .advanced = now_, .lost = {}});
  }
  for (Peer& peer : peers) {
    const int watched_rank = static_cast<int>(watched_.size());
    watched_.push_back(
        {.rank = watched_rank, .peer = std::move(peer), .progress = {}, .heard = now_, .advanced = now_, .lost = {}});
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Watchdog::~Watchdog() {
  thread_.request_stop();
  eventfd_write(wake_, 1);
  thread_.join();
  close(wake_);
}

int Watchdog::on_failure(std::function<void(const Failure&)> callback) {
  const std::scoped_lock lock(mutex_);
  on_failure_.emplace(++registered_, std::move(callback));
  return registered_;
}

void Watchdog::take_back(int number) {
  const std::scoped_lock lock(mutex_);
  on_failure_.erase(number);
}

void Watchdog::fail(ErrorKind kind, const std::string& message) { raise_error(FailureCause::kError, kind, message); }

void Watchdog::disagree(const std::string& message) {
  raise_error(FailureCause::kDisagrees, ErrorKind::kPeerFailed, message);
}

void Watchdog::raise_error(FailureCause cause, ErrorKind kind, const std::string& message) {
  std::fflush(nullptr);  // the end comes by _exit
  {
    const std::scoped_lock lock(mutex_);
    own_error_ = Failure{.cause = cause,
                         .rank = rank_,
                         .host = hosts_[rank_],
                         .progress = progress_.snapshot(),
                         .exit_code = exit_code(kind),
                         .message = message};
  }
  eventfd_write(wake_, 1);
  for (;;) {
    pause();
  }
}

void Watchdog::run(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "watchdog");  // for whoever looks at the process from outside
  while (!stop.stop_requested()) {
    wait_for_events();
    skip_suspension();
    read_signals();
    read_peers();
    take_own_error();
    beat();
    judge();
  }
  tell(MessageKind::kHeartbeat, 0, "");
}

void Watchdog::wait_for_events() {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}, {wake_, POLLIN, 0}};
  for (const Watched& watched : watched_) {
    if (watched.peer && !watched.lost) {
      fds.push_back({watched.peer->fd(), POLLIN, 0});
    }
  }
  const auto left = std::chrono::duration_cast<milliseconds>(next_beat_ - Clock::now()).count();
  // While a signal or an error is being weighed, time matters at a finer grain.
  const std::int64_t longest = signal_ != 0 || error_ ? 20 : kBeat.count();
  poll(fds.data(), fds.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, longest)));
  eventfd_t ignored = 0;
  eventfd_read(wake_, &ignored);
}

/// When this process itself was stopped (by mpirun on Ctrl-Z, with all others), the time that has passed is nobody's
/// fault.
void Watchdog::skip_suspension() {
  const Clock::time_point before = std::exchange(now_, Clock::now());
  if (now_ - before > 10 * kBeat) {
    for (Watched& watched : watched_) {
      watched.heard += now_ - before;
      watched.advanced += now_ - before;
    }
  }
}

void Watchdog::read_signals() {
  while (const int signal = signals_.take()) {
    note_signal(signal);
  }
}

void Watchdog::note_signal(int signal) {
  if (signal_ == 0) {
    signal_ = signal;
    signal_at_ = now_;
  }
}

void Watchdog::read_peers() {
  for (Watched& watched : watched_) {
    if (!watched.peer) {
      watched.heard = now_;
      update(watched, progress_.snapshot());
    } else if (!watched.lost &&
               !watched.peer->receive([&](const Message& message) { take_message(watched, message); })) {
      watched.lost = now_;
    }
  }
}

void Watchdog::update(Watched& watched, const ProgressRecord& progress) {
  if (watched.progress != progress) {
    watched.progress = progress;
    watched.advanced = now_;
  }
}

void Watchdog::take_message(Watched& from, const Message& message) {
  from.heard = now_;
  update(from, message.progress);
  if (message.kind == MessageKind::kVerdict) {
    obey(message.exit_code);
  }
  if (leader() && (message.kind == MessageKind::kError || message.kind == MessageKind::kDisagrees)) {
    take_error(from, message);
  }
  if (leader() && message.signal != 0) {
    note_signal(message.signal);
  }
}

void Watchdog::take_error(Watched& from, const Message& message) {
  const bool disagrees = message.kind == MessageKind::kDisagrees;
  from.disagrees = from.disagrees || disagrees;
  if (error_) {
    return;
  }
  const std::string text = message.text.data();
  // Bad input is the user's to mend, whichever rank has met it; any other error is looked for on the rank that threw it. A disagreement
  // gets its words when all have compared.
  const bool bare = disagrees || message.exit_code == exit_code(ErrorKind::kBadInput);
  error_ = {Failure{.cause = disagrees ? FailureCause::kDisagrees : FailureCause::kError,
                    .rank = from.rank,
                    .host = hosts_[from.rank],
                    .progress = from.progress,
                    .exit_code = message.exit_code,
                    .message = bare ? text : "rank " + std::to_string(from.rank) + ": " + text},
            now_};
}

void Watchdog::take_own_error() {
  const std::scoped_lock lock(mutex_);
  if (!own_error_) {
    return;
  }
  const bool disagrees = own_error_->cause == FailureCause::kDisagrees;
  if (leader()) {
    watched_.front().disagrees = disagrees;
  }
  if (!error_) {
    error_ = {*own_error_, now_};
    if (!leader()) {
      tell(disagrees ? MessageKind::kDisagrees : MessageKind::kError, own_error_->exit_code, own_error_->message);
    }
  }
}

void Watchdog::beat() {
  if (now_ >= next_beat_) {
    tell(MessageKind::kHeartbeat, 0, "");
    next_beat_ = now_ + kBeat;
  }
}

void Watchdog::tell(MessageKind kind, int exit_code, const std::string& text) {
  Message message;
  message.kind = kind;
  message.exit_code = exit_code;
  message.signal = signal_;
  message.progress = progress_.snapshot();
  std::strncpy(message.text.data(), text.c_str(), message.text.size() - 1);
  for (Watched& watched : watched_) {
    if (watched.peer && !watched.lost) {
      watched.peer->send(message);
    }
  }
}

/// A worker sees rank 0 alone, so it cannot tell who keeps rank 0 waiting: it judges rank 0's life and leaves its work to rank 0's own
/// watchdog.
std::optional<Culprit> Watchdog::culprit(double deadline) const {
  std::vector<RankStatus> ranks;
  ranks.reserve(watched_.size());
  for (const Watched& watched : watched_) {
    ranks.push_back({.rank = watched.rank,
                     .lost = watched.lost.has_value(),
                     .lost_age = watched.lost ? seconds(now_ - *watched.lost) : 0,
                     .silence = seconds(now_ - watched.heard),
                     .stall = leader() ? seconds(now_ - watched.advanced) : 0,
                     .progress = watched.progress});
  }
  return find_culprit(ranks, deadline);
}

void Watchdog::judge() {
  if (const std::optional<Culprit> found = culprit(deadline_.load(std::memory_order_relaxed))) {
    end(describe(*found));
  }
  if (error_) {
    judge_error(*error_);
  } else if (signal_ != 0) {
    judge_signal();
  }
}

void Watchdog::judge_error(const PendingError& error) {
  const Failure& failure = error.failure;
  const auto age = now_ - error.since;
  if (!leader()) {
    if (age >= kLeaderAnswers) {
      end(failure);
    }
  } else if (failure.cause == FailureCause::kDisagrees) {
    if (all_have_compared(failure) || age >= kCompareGrace) {
      end(describe_disagreement(failure));
    }
  } else if (failure.exit_code != exit_code(ErrorKind::kPeerFailed) || age >= kErrorGrace) {
    end(failure);
  }
}

/// A rank that agrees goes on to the collective after the one that brought the news to the rank that does not.
bool Watchdog::all_have_compared(const Failure& difference) const {
  const std::uint64_t compared = difference.progress.collective;
  return std::ranges::all_of(
      watched_, [&](const Watched& w) { return w.disagrees || w.lost || w.progress.collective > compared; });
}

/// `difference`: as the rank has said it that found it first.
Failure Watchdog::describe_disagreement(Failure difference) const {
  std::vector<int> disagreeing;
  for (const Watched& watched : watched_) {
    if (watched.disagrees) {
      disagreeing.push_back(watched.rank);
    }
  }
  const std::vector<int> odd = odd_ranks(disagreeing, static_cast<int>(watched_.size()));
  std::string who;
  for (const int rank : odd) {
    who += (who.empty() ? "rank " : ", rank ") + std::to_string(rank) + " on " + hosts_[rank];
  }
  const std::string verb = odd.size() > 1 ? " disagree" : " disagrees";
  const std::string with = odd.front() != 0           ? " with rank 0: "
                           : disagreeing.front() == 0 ? " with its own round: "
                                                      : " with all other ranks: for them ";
  difference.rank = odd.front();
  difference.host = hosts_[difference.rank];
  difference.progress = watched_[difference.rank].progress;
  difference.message = who + verb + with + difference.message;
  return difference;
}

/// Reached only while no death shows. A worker leaves the decision to rank 0, which hears of the signal with the
/// heartbeat, unless rank 0 is silent.
void Watchdog::judge_signal() {
  if (progress_.snapshot().state == RankState::kLeaving) {
    return;
  }
  // At once: mpirun's second of grace is cut short by the end of any of its children, such as the ssh to the lost host.
  if (const std::optional<Culprit> found = culprit(kCutOff); found && found->cause == FailureCause::kSilent) {
    end(describe(*found));
  }
  if (!leader() || now_ - signal_at_ < kDeathShows) {
    return;
  }
  interrupted_.store(signal_, std::memory_order_relaxed);
  if (now_ - signal_at_ >= kInterruptGrace) {
    end({.cause = FailureCause::kInterrupted,
         .rank = rank_,
         .host = hosts_[rank_],
         .progress = progress_.snapshot(),
         .exit_code = exit_code_of_signal(signal_),
         .message = "interrupted by " + signal_name(signal_)});
  }
}

Failure Watchdog::describe(const Culprit& culprit) const {
  const Watched& watched =
      *std::find_if(watched_.begin(), watched_.end(), [&](const Watched& w) { return w.rank == culprit.rank; });
  Failure failure{.cause = culprit.cause,
                  .rank = culprit.rank,
                  .host = hosts_[culprit.rank],
                  .progress = watched.progress,
                  .exit_code = exit_code(ErrorKind::kPeerFailed),
                  .message = {}};
  char age[32];
  const Clock::time_point since = culprit.cause == FailureCause::kSilent ? watched.heard : watched.advanced;
  std::snprintf(age, sizeof age, "%.1f s", seconds(now_ - since));
  const std::string what = culprit.cause == FailureCause::kDied ? "died"
                           : culprit.cause == FailureCause::kSilent
                               ? "has not answered for " + std::string(age) + " (stopped, or its host is cut off)"
                               : "has made no progress for " + std::string(age) + " while others wait";
  failure.message = "rank " + std::to_string(culprit.rank) + " on " + failure.host + " " + what +
                    "; last seen in round " + std::to_string(watched.progress.round) + ", collective " +
                    std::to_string(watched.progress.collective) + ", " + name_of(watched.progress.state);
  return failure;
}

/// Another rank has said why the job ends: rank 0, or its deputy because this is rank 0 and was stopped (mpirun wakes it before it kills it).
void Watchdog::obey(int exit_code) {
  if (leader()) {
    report(describe({.rank = rank_, .cause = FailureCause::kSilent}));
  } else {
    report({.cause = FailureCause::kError,
            .rank = 0,
            .host = hosts_[0],
            .progress = watched_[0].progress,
            .exit_code = exit_code,
            .message = "rank 0 has ended the job"});
    std::this_thread::sleep_for(kLeaderFirst);
  }
  _exit(exit_code);
}

/// The program's last chance to write its results.
void Watchdog::report(const Failure& failure) {
  alarm(kCallbackSeconds);
  const std::scoped_lock lock(mutex_);
  for (auto newest = on_failure_.rbegin(); newest != on_failure_.rend(); ++newest) {
    newest->second(failure);
  }
}

void Watchdog::end(const Failure& failure) {
  // Rank 0 speaks for the job. If rank 0 is lost its deputy does, and if rank 0 does not react to this rank's error, this one.
  const bool rank_0_is_lost = failure.rank == 0 && !leader();
  if (rank_0_is_lost && rank_ != deputy(hosts_)) {
    std::this_thread::sleep_for(kLeaderFirst);
    _exit(failure.exit_code);
  }
  const std::string line = program_ + ": error: " + failure.message + "\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  if (leader()) {
    report(failure);
  }
  tell(MessageKind::kVerdict, failure.exit_code, "");
  _exit(failure.exit_code);
}

}  // namespace specdec
