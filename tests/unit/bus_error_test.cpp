#include "parallel/bus_error.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

constexpr std::size_t kBytes = 1 << 16;

[[noreturn]] void touch_after_cutting_short(const std::filesystem::path& path) {
  report_bus_errors();
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  bool ready = ftruncate(fd, kBytes) == 0;
  const auto* bytes = static_cast<const volatile char*>(mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, fd, 0));
  ready = ready && ftruncate(fd, 0) == 0;
  _exit(ready ? bytes[kBytes - 1] : 3);
}

TEST(BusErrorDeathTest, NamesTheFileThatWasCutShort) {
  const tests::TemporaryDirectory directory;
  EXPECT_EXIT(touch_after_cutting_short(directory.path() / "model.safetensors"), ::testing::ExitedWithCode(2),
              "error: /.*model.safetensors: was cut short");
}

}  // namespace
}  // namespace specdec
