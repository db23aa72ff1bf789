#include "mpi_test.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/program.h"

namespace specdec::mpi_test {
namespace {

MpiSession* current = nullptr;

/// On ranks other than 0: silence, except for failures, which go out at once, since the rank may never come to the end when the
/// others wait for it.
class WorkerPrinter final : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& info) override {
    case_ = std::string(info.test_suite_name()) + "." + info.name();
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) {
      const std::string text = "[rank " + std::to_string(session().rank()) + "] " + case_ + ": " +
                               (result.file_name() == nullptr ? "" : result.file_name()) + ":" +
                               std::to_string(result.line_number()) + ": " + result.message() + "\n";
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    }
  }

 private:
  std::string case_ = "outside of a test";
};

/// Whether any rank has failed; all ranks learn it.
bool any_failed(bool mine) {
  const std::unique_ptr<Communicator> world = session().world("auto");
  std::vector<std::byte> all(world->size());
  const std::byte flag{mine ? std::uint8_t{1} : std::uint8_t{0}};
  world->all_gather({&flag, 1}, all, {});
  for (int r = 0; r < world->size(); ++r) {
    if (all[r] != std::byte{0} && world->rank() == 0) {
      ADD_FAILURE() << "rank " << r << " has failed";
    }
  }
  return std::count(all.begin(), all.end(), std::byte{0}) != world->size();
}

int run_all(MpiSession& session) {
  current = &session;
  // A case that has failed on one rank may leave the others in a collective.
  session.watchdog().set_deadline(30.0);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (session.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new WorkerPrinter);  // owned by GoogleTest
  }
  const int result = RUN_ALL_TESTS();
  const bool nothing_ran = testing::UnitTest::GetInstance()->test_to_run_count() == 0;
  if (nothing_ran && session.rank() == 0) {
    throw_bad_input("no test ran");
  }
  return any_failed(result != 0 || nothing_ran) ? 1 : 0;
}

}  // namespace

MpiSession& session() { return *current; }

}  // namespace specdec::mpi_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return specdec::run_program(argc, argv, specdec::mpi_test::run_all);
}
