#include "parallel/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <string>

#include "parallel/agree.h"
#include "parallel/bus_error.h"
#include "parallel/disagreement.h"

namespace specdec {
namespace {

struct Ending {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
};

std::string program_name(int argc, char** argv) {
  const std::string path = argc > 0 ? argv[0] : "specdec";
  return path.substr(path.find_last_of('/') + 1);
}

/// One line for the user; a broken invariant also says where it stands in the source.
Ending describe(const std::exception& exception) {
  const auto* error = dynamic_cast<const Error*>(&exception);
  if (error == nullptr) {
    return {ErrorKind::kInternal, exception.what()};
  }
  std::string message = error->what();
  if (error->kind() == ErrorKind::kInternal) {
    const std::string file = error->where().file_name();
    message += " (" + file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(error->where().line()) + ")";
  }
  return {error->kind(), message};
}

void print(const std::string& program, const Ending& ending) {
  // One write, so that the line stays whole among what other processes write.
  const std::string line = program + ": error: " + ending.message + "\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

void prepare_streams() {
  std::signal(SIGPIPE, SIG_IGN);
  int opened = 0;
  do {
    opened = open("/dev/null", O_RDWR);  // gets the lowest number that is free
  } while (opened >= 0 && opened <= STDERR_FILENO);
  if (opened >= 0) {
    close(opened);
  }
}

}  // namespace

int run_program(int argc, char** argv, const std::function<int(MpiSession&)>& body) {
  const std::string program = program_name(argc, argv);
  prepare_streams();
  report_bus_errors();
  try {
    MpiSession session(argc, argv, program);
    try {
      session.watch();
      return body(session);
    } catch (const AgreedError& error) {
      const Ending ending = describe(error);
      if (session.rank() == 0) {
        print(program, ending);
      }
      return exit_code(ending.kind);
    } catch (const Disagreement& error) {
      session.watchdog().disagree(error.what());
    } catch (const std::exception& error) {
      const Ending ending = describe(error);
      if (session.size() > 1 && session.watched()) {
        session.watchdog().fail(ending.kind, ending.message);
      }
      print(program, ending);
      if (session.size() > 1) {
        _exit(exit_code(ending.kind));  // the others would be waited for
      }
      return exit_code(ending.kind);
    }
  } catch (const std::exception& error) {  // of MpiSession's constructor
    const Ending ending = describe(error);
    print(program, ending);
    return exit_code(ending.kind);
  }
}

int run_local_program(int argc, char** argv, const std::function<int()>& body) {
  prepare_streams();
  report_bus_errors();
  try {
    return body();
  } catch (const std::exception& error) {
    const Ending ending = describe(error);
    print(program_name(argc, argv), ending);
    return exit_code(ending.kind);
  }
}

}  // namespace specdec
