#include "backend/cuda/staging.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/host_buffer.h"

namespace specdec {
namespace {

/// A device that does nothing before somebody waits.
struct LazyCopies {
  using Mark = std::size_t;

  struct Queue {
    std::deque<std::function<void()>> pending;
    std::size_t enqueued = 0;
    std::size_t done = 0;
  };

  std::unique_ptr<Buffer> allocate(std::size_t bytes) { return std::make_unique<HostBuffer>(bytes); }
  void to_device(std::byte* to, const std::byte* from, std::size_t bytes) { enqueue(to, from, bytes); }
  void to_host(std::byte* to, const std::byte* from, std::size_t bytes) { enqueue(to, from, bytes); }
  void mark(Mark& mark) { mark = queue->enqueued; }
  void wait(const Mark& mark) {
    for (; queue->done < mark; ++queue->done) {
      queue->pending.front()();
      queue->pending.pop_front();
    }
  }

  void enqueue(std::byte* to, const std::byte* from, std::size_t bytes) {
    queue->pending.emplace_back([=] { std::copy_n(from, bytes, to); });
    ++queue->enqueued;
  }

  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
};

std::vector<std::byte> bytes_from(int first, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(first + static_cast<int>(i * 7));
  }
  return bytes;
}

constexpr std::size_t kPartBytes = 64;

TEST(Staging, CopiesOfAllSizesArriveInOrder) {
  cuda::Staging<LazyCopies> staging(LazyCopies{}, kPartBytes);
  for (const std::size_t size : {0U, 1U, 63U, 64U, 65U, 200U, 256U, 1000U}) {
    std::vector<std::byte> device(size);
    std::vector<std::byte> back(size);
    {
      const std::vector<std::byte> sent = bytes_from(static_cast<int>(size), size);
      staging.upload(device.data(), sent);
    }
    staging.download(back, device.data());
    staging.finish();
    EXPECT_EQ(back, bytes_from(static_cast<int>(size), size)) << size;
  }
}

TEST(Staging, ManySmallCopiesNeverOverwriteWhatIsStillUnderWay) {
  LazyCopies copies;
  cuda::Staging<LazyCopies> staging(copies, kPartBytes);
  constexpr std::size_t kSize = 24;
  constexpr int kRounds = 50;
  std::vector<std::vector<std::byte>> device(kRounds, std::vector<std::byte>(kSize));
  std::vector<std::vector<std::byte>> back(kRounds, std::vector<std::byte>(kSize));
  for (int i = 0; i < kRounds; ++i) {
    staging.upload(device[i].data(), bytes_from(i, kSize));
    staging.download(back[i], device[i].data());
  }
  EXPECT_LT(copies.queue->done, copies.queue->enqueued) << "the host waits only where the ring is full";
  staging.finish();
  for (int i = 0; i < kRounds; ++i) {
    EXPECT_EQ(back[i], bytes_from(i, kSize)) << i;
  }
}

TEST(Staging, WaitsForNothingWhileTheRingHasRoom) {
  LazyCopies copies;
  cuda::Staging<LazyCopies> staging(copies, kPartBytes);
  std::vector<std::byte> device(kPartBytes);
  for (std::size_t part = 0; part < cuda::Staging<LazyCopies>::kParts; ++part) {
    staging.upload(device.data(), bytes_from(1, kPartBytes));
  }
  EXPECT_EQ(copies.queue->done, 0U);
}

}  // namespace
}  // namespace specdec
