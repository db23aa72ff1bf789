#include "parallel/linear.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include "backend/error.h"
#include "backend/forwarding_backend.h"
#include "backend/reference/reference_backend.h"
#include "parallel/device_wait.h"
#include "parallel/thread_communicator.h"
#include "tests/support/forwarding_communicator.h"

/// Where the rows of an all-reduce lie, and where they are summed.
namespace specdec {
namespace {

int marker = 0;

/// A device whose memory the host must not read in place, though here it could; it counts what goes over to the host.
class DeviceBackend final : public ForwardingBackend {
 public:
  DeviceBackend() : ForwardingBackend(std::make_unique<ReferenceBackend>()) {}
  bool on_host() const override { return false; }
  Stream stream() const override { return {&marker}; }
  void download(std::span<std::byte> host, const std::byte* device, Stream stream) override {
    ++downloads;
    ForwardingBackend::download(host, device, stream);
  }
  void matmul_before(const PackedLinear& weight, ConstRows x, Rows y, const PackedLinear& next,
                     Stream stream) override {
    asked = &next;
    ForwardingBackend::matmul_before(weight, x, y, next, stream);
  }
  int downloads = 0;
  const PackedLinear* asked = nullptr;
};

/// A communicator of that device; it notes what it was given.
class DeviceCommunicator final : public tests::ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  bool on_device() const override { return true; }
  void all_reduce(std::span<float> data, Stream stream) override {
    reduced = data.data();
    on = stream.native;
    before();
    ForwardingCommunicator::all_reduce(data, stream);
  }
  const float* reduced = nullptr;
  void* on = nullptr;
  std::function<void()> before = [] {};
};

constexpr std::int64_t kInputs = 4;
constexpr std::int64_t kOutputs = 3;

/// One row through a layer whose weights and inputs are small integers; `y` is where the sum is to be.
/// `next`: null, or what is multiplied with after it.
void forward(Backend& backend, Communicator& group, std::vector<float>& y, const PackedLinear* next = nullptr) {
  std::vector<float> weight(kInputs * kOutputs);
  std::iota(weight.begin(), weight.end(), static_cast<float>(group.rank()));
  const LinearSpec spec{.stacked = {{.data = std::as_bytes(std::span(weight)).data(),
                                     .dtype = DType::kF32,
                                     .rows = kOutputs,
                                     .cols = kInputs,
                                     .row_stride = kInputs}},
                        .slices = {{0, kInputs}},
                        .dtype = DType::kF32};
  RowParallelLinear layer(backend, group, spec, nullptr);
  if (next != nullptr) {
    layer.set_next(*next);
  }
  const std::vector<float> x(kInputs, 1);
  y.assign(kOutputs, 0);
  layer.forward({x.data(), 1, kInputs, kInputs}, {y.data(), 1, kOutputs, kOutputs}, Stream{});
}

/// What may come after a layer.
std::unique_ptr<PackedLinear> some_weight(Backend& backend) {
  const float weight = 1;
  return backend.pack({.stacked = {{reinterpret_cast<const std::byte*>(&weight), DType::kF32, 1, 1, 1, 1}},
                       .slices = {{0, 1}},
                       .dtype = DType::kF32});
}

// Ranks 0 and 1: rows of 0..3, 4..7, 8..11 and of 1..4, 5..8, 9..12.
const std::vector<float> kSum = {6 + 10, 22 + 26, 38 + 42};

TEST(RowParallelLinear, SumsOnTheDeviceInItsStream) {
  run_ranks(2, [](Communicator& group) {
    DeviceBackend backend;
    DeviceCommunicator on_device(group);
    std::vector<float> y;
    forward(backend, on_device, y);
    EXPECT_EQ(y, kSum);
    EXPECT_EQ(on_device.reduced, y.data());
    EXPECT_EQ(on_device.on, &marker);
    EXPECT_EQ(backend.downloads, 0);
  });
}

TEST(RowParallelLinear, AsksForTheNextWeightsBeforeItWaitsForOtherRanks) {
  run_ranks(2, [](Communicator& group) {
    DeviceBackend backend;
    DeviceCommunicator on_device(group);
    const auto next = some_weight(backend);
    const PackedLinear* asked_by_then = nullptr;
    on_device.before = [&] { asked_by_then = backend.asked; };
    std::vector<float> y;
    forward(backend, on_device, y);
    EXPECT_EQ(asked_by_then, nullptr);
    forward(backend, on_device, y, next.get());
    EXPECT_EQ(asked_by_then, next.get());
    EXPECT_EQ(y, kSum);
  });
}

TEST(RowParallelLinear, GoesOverTheHostWhereTheCommunicatorDoes) {
  run_ranks(2, [](Communicator& group) {
    DeviceBackend backend;
    std::vector<float> y;
    forward(backend, group, y);
    EXPECT_EQ(y, kSum);
    EXPECT_EQ(backend.downloads, 1);
  });
}

TEST(RowParallelLinear, OfOneRankGoesNowhere) {
  run_ranks(1, [](Communicator& group) {
    DeviceBackend backend;
    const auto next = some_weight(backend);
    std::vector<float> y;
    forward(backend, group, y, next.get());
    EXPECT_EQ(y, (std::vector<float>{6, 22, 38}));
    EXPECT_EQ(backend.downloads, 0);
    EXPECT_EQ(backend.asked, nullptr) << "there is no wait to ask for weights in";
  });
}

/// The watchdog's view of a rank.
RankState state_of(const Progress& progress) { return progress.snapshot().state; }

TEST(DeviceWait, CountsAsWaitingInTheLastCollective) {
  run_ranks(1, [](Communicator& group) {
    Progress progress;
    { const InCollective enqueued(progress); }
    EXPECT_EQ(state_of(progress), RankState::kComputing);
    DeviceWait wait(progress, group);
    wait.begin_wait();
    EXPECT_EQ(state_of(progress), RankState::kWaiting);
    EXPECT_EQ(progress.snapshot().collective, 1U);
    const std::uint64_t ticks = progress.snapshot().ticks;
    wait.poll();
    EXPECT_EQ(progress.snapshot().ticks, ticks) << "a look at a device that hangs is no progress";
    wait.end_wait();
    EXPECT_EQ(state_of(progress), RankState::kComputing);
    const InCollective guard(progress);
    wait.begin_wait();
    wait.end_wait();
    EXPECT_EQ(state_of(progress), RankState::kWaiting);
  });
}

TEST(DeviceWait, AsksTheCommunicator) {
  class Lost final : public tests::ForwardingCommunicator {
   public:
    using ForwardingCommunicator::ForwardingCommunicator;
    void poll() override { throw Error(ErrorKind::kPeerFailed, "lost"); }
  };
  run_ranks(1, [](Communicator& group) {
    Progress progress;
    Lost lost(group);
    DeviceWait wait(progress, lost);
    EXPECT_THROW(wait.poll(), Error);
  });
}

}  // namespace
}  // namespace specdec
