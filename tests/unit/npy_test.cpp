#include "runtime/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/bad_input.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

using ::specdec::tests::bad_input;
using ::specdec::tests::TemporaryDirectory;

TEST(Npy, WritesTheFormat) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "a.npy";
  NpyWriter writer(file, 3, 2);
  writer.append(std::vector<float>{1.0F, 2.0F});
  writer.append(std::vector<float>{3.0F, 4.0F, 5.0F, 6.0F});
  writer.finish();
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  ASSERT_EQ(bytes.size(), 128U + 24U);
  EXPECT_EQ(bytes.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(bytes.substr(10, 60), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), } ");
  EXPECT_EQ(bytes[127], '\n');
  float last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - 4, 4);
  EXPECT_EQ(last, 6.0F);
}

TEST(Npy, SaysWhenItCannotWrite) {
  EXPECT_THAT(bad_input([] { NpyWriter("/nonexistent/a.npy", 1, 1); }), ::testing::HasSubstr("/nonexistent/a.npy"));
  const std::vector<float> many(1 << 20);
  EXPECT_THAT(bad_input([&] {
                NpyWriter writer("/dev/full", 1, 1 << 20);
                writer.append(many);
                writer.finish();
              }),
              ::testing::HasSubstr("full"));
}

TEST(Npy, ChecksItsShape) {
  const TemporaryDirectory directory;
  NpyWriter writer(directory.path() / "a.npy", 1, 2);
  EXPECT_THROW(writer.finish(), Error);
  EXPECT_THROW(writer.append(std::vector<float>(3)), Error);
}

}  // namespace
}  // namespace specdec
