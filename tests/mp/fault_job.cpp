// A job that never ends by itself, for fault_test.py: rounds of collectives, and what a test orders to go wrong.
//
//   fault_job MODE DEADLINE OUTPUT TRANSPORT
//
// Every rank prints "running" when the rounds have begun; OUTPUT gets what rank 0's on_failure writes.

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "parallel/agree.h"
#include "parallel/disagreement.h"
#include "parallel/program.h"

namespace {

using namespace specdec;

void write_file(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  [[maybe_unused]] const ssize_t written = write(fd, text.data(), text.size());
  close(fd);
}

/// What goes wrong in round 50 on the last rank, or on rank 0 for modes that say so.
void misbehave(const std::string& mode, MpiSession& session) {
  const bool last = session.rank() == session.size() - 1;
  if (mode == "throw-last" && last) {
    throw Error(ErrorKind::kInternal, "broken on purpose");
  }
  if (mode == "bad-input-last" && last) {
    throw_bad_input("file.json: broken on purpose");
  }
  if (mode == "bad-input-0" && session.rank() == 0) {
    throw_bad_input("config.yaml:3: broken on purpose");
  }
  if (mode == "segv-last" && last) {
    std::signal(SIGSEGV, SIG_DFL);
    std::raise(SIGSEGV);
  }
  if (mode == "exit-last" && last) {
    _exit(0);
  }
  if ((mode == "stall-last" && last) || (mode == "stall-0" && session.rank() == 0) ||
      (mode == "stall-within-0 inside" && session.rank() == 0)) {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }
  if (mode == "slow-last" && last) {
    // Longer than the deadline, but with signs of progress: no hang.
    for (int i = 0; i < 40; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      session.progress().tick();
    }
  }
}

/// Right after a broadcast, as runtime/agreement.h does: the last rank, the last two, or all but rank 0 differ from rank 0, or it from
/// itself.
void differ(const std::string& mode, const MpiSession& session) {
  const int from_last = session.size() - 1 - session.rank();
  if ((mode == "differ-last" && from_last == 0) || (mode == "differ-two" && from_last <= 1) ||
      (mode == "differ-workers" && session.rank() > 0) || (mode == "differ-0" && session.rank() == 0)) {
    throw Disagreement("the count of things is not rank 0's");
  }
}

int rounds(MpiSession& session, const std::string& mode, const std::string& transport) {
  const auto world = session.world(transport);
  std::vector<float> data(5 * 320, 1.0F);
  for (std::uint64_t round = 1;; ++round) {
    session.progress().enter_round(round);
    std::byte stop{session.rank() == 0 && session.watchdog().interrupted() != 0 && mode != "deaf" ? std::uint8_t{1}
                                                                                                  : std::uint8_t{0}};
    world->broadcast({&stop, 1}, 0, {});
    if (stop != std::byte{0}) {
      if (session.rank() == 0) {
        write_file("/dev/stdout", "stopped in order\n");
      }
      return 128 + SIGTERM;
    }
    if (round == 50) {
      differ(mode, session);
    }
    for (int i = 0; i < 10; ++i) {
      if (round == 50 && i == 5) {
        misbehave(mode + " inside", session);
      }
      world->all_reduce(data, {});
      std::fill(data.begin(), data.end(), 1.0F);
    }
    if (round == 5) {
      write_file("/dev/stdout", "running\n");
    }
    if (round == 50) {
      misbehave(mode, session);
    }
    if (round == 60 && (mode == "slow-last" || mode == "end")) {
      return 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Before MPI could know of this rank.
void stop_before_start(const std::string& mode) {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank != nullptr && mode == std::string("stopped-first-") + rank) {
    std::raise(SIGSTOP);
  }
}

}  // namespace

int main(int argc, char** argv) {
  stop_before_start(argc > 1 ? argv[1] : "");
  return specdec::run_program(argc, argv, [&](MpiSession& session) {
    if (argc != 5) {
      throw_bad_input("usage: fault_job MODE DEADLINE OUTPUT TRANSPORT");
    }
    session.watchdog().set_deadline(std::strtod(argv[2], nullptr));
    if (session.rank() == 0) {
      // Not LastWords, which ends with the scope that an exception leaves.
      session.watchdog().on_failure([&](const Failure& failure) {
        write_file(argv[3],
                   "rank " + std::to_string(failure.rank) + " code " + std::to_string(failure.exit_code) + "\n");
      });
    }
    const std::string mode = argv[1];
    if (mode == "agreed") {
      const auto world = session.world(argv[4]);
      agree(*world, [&] {
        if (session.rank() > 0) {
          throw_bad_input("shard-" + std::to_string(session.rank()) + ": missing");
        }
      });
    }
    return rounds(session, mode, argv[4]);
  });
}
