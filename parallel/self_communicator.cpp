#include "parallel/self_communicator.h"

#include <algorithm>

#include "backend/error.h"

namespace specdec {

void SelfCommunicator::all_reduce(std::span<float> /*data*/, Stream /*stream*/) { report_progress(); }

void SelfCommunicator::all_reduce(std::span<BF16> /*data*/, Stream /*stream*/) { report_progress(); }

void SelfCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream /*stream*/) {
  check(all.size() == mine.size(), "all_gather: `all` must hold size() * mine.size() bytes");
  if (all.data() != mine.data()) {
    std::copy(mine.begin(), mine.end(), all.begin());
  }
  report_progress();
}

void SelfCommunicator::gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) {
  check(root == 0, "gather: root outside the group");
  all_gather(mine, all, stream);
}

void SelfCommunicator::broadcast(std::span<std::byte> /*data*/, int root, Stream /*stream*/) {
  check(root == 0, "broadcast: root outside the group");
  report_progress();
}

}  // namespace specdec
