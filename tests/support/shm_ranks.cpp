#include "tests/support/shm_ranks.h"

#include <barrier>
#include <memory>
#include <thread>
#include <vector>

namespace specdec::tests {

void run_over_shm(int ranks, const ShmOptions& options, const std::function<void(Communicator&)>& body) {
  const auto region =
      std::make_shared<SharedRegion>(SharedRegion::of_this_process(ShmCommunicator::region_bytes(ranks)));
  std::barrier made(ranks);
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Progress progress;
      ShmCommunicator group(region, r, ranks, progress, options);
      made.arrive_and_wait();
      body(group);
    });
  }
}

}  // namespace specdec::tests
