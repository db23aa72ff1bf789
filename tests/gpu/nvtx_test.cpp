#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "parallel/nvtx_ranges.h"

/// What a profiler hears of a trace's spans. Needs a build for GPUs and no GPU.
namespace specdec {
namespace {

constexpr TraceKind kLayer{.name = "layer", .value = "layer", .numbered = true};
constexpr TraceKind kRound{.name = "round", .value = "round", .numbered = true};

TEST(Nvtx, ListenersHearSpansByTheirNames) {
  const char* const file = std::getenv("NVTX_INJECTION64_PATH");
  ASSERT_NE(file, nullptr) << "this test is run by ctest, which says who listens";
  void* const listener = dlopen(file, RTLD_NOW);
  ASSERT_NE(listener, nullptr) << dlerror();
  const auto told = reinterpret_cast<const char* (*)()>(dlsym(listener, "nvtx_listener_told"));
  ASSERT_NE(told, nullptr);

  const std::unique_ptr<RangeSink> ranges = make_nvtx_ranges();
  Tracer tracer(0, ranges.get());
  {
    TimedSpan round(&tracer, kRound);
    const Span layer(&tracer, kLayer, 3);
  }
  EXPECT_STREQ(told(), "domain specdec\n+round\n+layer 3 (3)\n-\n-\n");
}

}  // namespace
}  // namespace specdec
