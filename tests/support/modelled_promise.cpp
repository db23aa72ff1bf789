#include "tests/support/modelled_promise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "parallel/host_clock.h"

namespace specdec::battery {
namespace {

enum class Kind : std::uint8_t { kAllReduce, kAllReduceBf16, kAllGather, kGather, kBroadcast, kBarrier };
constexpr int kOperationKinds = 6;

/// Travels as its bytes.
struct Operation {
  Kind kind;
  int root;
  std::size_t bytes;
  std::int64_t begin;
  std::int64_t end;
};

void run(ModelledLink& link, Operation& operation) {
  const std::size_t bytes = operation.bytes;
  std::vector<std::byte> mine(bytes);
  std::vector<std::byte> all(bytes * link.size());
  std::vector<float> floats(bytes / sizeof(float), 1.0F);
  std::vector<BF16> halves(bytes / sizeof(BF16));
  operation.begin = host_nanoseconds();
  switch (operation.kind) {
    case Kind::kAllReduce:
      link.all_reduce(std::span(floats), Stream{});
      break;
    case Kind::kAllReduceBf16:
      link.all_reduce(std::span(halves), Stream{});
      break;
    case Kind::kAllGather:
      link.all_gather(mine, all, Stream{});
      break;
    case Kind::kGather:
      link.gather(mine, all, operation.root, Stream{});
      break;
    case Kind::kBroadcast:
      link.broadcast(mine, operation.root, Stream{});
      break;
    case Kind::kBarrier:
      link.barrier();
  }
  operation.end = host_nanoseconds();
}

double modelled(const Interconnect& interconnect, const Operation& operation, int ranks) {
  switch (operation.kind) {
    case Kind::kAllReduce:
    case Kind::kAllReduceBf16:
      return interconnect.all_reduce(operation.bytes, ranks);
    case Kind::kAllGather:
      return interconnect.all_gather(operation.bytes, ranks);
    case Kind::kGather:
      return interconnect.gather(operation.bytes, ranks);
    case Kind::kBroadcast:
      return interconnect.broadcast(operation.bytes, ranks);
    case Kind::kBarrier:
      return interconnect.barrier(ranks);
  }
  return 0;
}

bool waits(const Operation& operation, int rank) {
  switch (operation.kind) {
    case Kind::kGather:
      return rank == operation.root;
    case Kind::kBroadcast:
      return rank != operation.root;
    default:
      return true;
  }
}

}  // namespace

void expect_never_shorter(ModelledLink& link, const Interconnect& interconnect, std::uint64_t seed, int operations) {
  std::mt19937 shared(5);  // the same decisions on every rank
  std::vector<Operation> mine(operations);
  link.use(interconnect);
  for (int i = 0; i < operations; ++i) {
    Operation& operation = mine[i];
    operation.kind = static_cast<Kind>(shared() % kOperationKinds);
    operation.root = static_cast<int>(shared() % link.size());
    operation.bytes = 8 * (1 + shared() % 4000);
    const auto dawdle = static_cast<int>(shared() % 200);
    if (i % link.size() == link.rank()) {
      std::this_thread::sleep_for(std::chrono::microseconds(dawdle));
    }
    run(link, operation);
  }
  const auto waited = std::ranges::count_if(mine, [&](const Operation& o) { return waits(o, link.rank()); });
  EXPECT_EQ(link.totals().collectives, link.size() == 1 ? 0 : waited) << "rank " << link.rank();
  link.use({});
  std::vector<Operation> all(mine.size() * link.size());
  link.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), Stream{});
  int too_short = 0;
  for (int i = 0; i < operations; ++i) {
    const auto of = [&](int rank) -> const Operation& { return all[mine.size() * rank + i]; };
    std::int64_t last = of(0).begin;
    for (int r = 1; r < link.size(); ++r) {
      last = std::max(last, of(r).begin);
    }
    const double seconds = interconnect.with_jitter(modelled(interconnect, mine[i], link.size()), seed, i + 1);
    for (int r = 0; r < link.size(); ++r) {
      const std::int64_t since = mine[i].kind == Kind::kBroadcast ? of(mine[i].root).begin : last;
      const bool is_short = static_cast<double>(of(r).end - since) < seconds * 1e9;
      too_short += waits(mine[i], r) && is_short ? 1 : 0;
    }
  }
  EXPECT_EQ(too_short, 0) << "of " << operations << " operations on " << link.size() << " ranks";
}

}  // namespace specdec::battery
