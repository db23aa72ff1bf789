#include "models/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "backend/dtype.h"
#include "tests/support/bad_input.h"
#include "tests/unit/model_files.h"

namespace specdec {
namespace {

using ::specdec::tests::bad_input;
using ::specdec::tests::f32_checkpoint;
using ::specdec::tests::safetensors_file;
using ::specdec::tests::TemporaryDirectory;
using ::testing::HasSubstr;

/// Message of the error with which a single file of this header and so many bytes of data is refused.
std::string refused(const std::string& header, std::size_t data_bytes) {
  const TemporaryDirectory directory;
  directory.write("model.safetensors", safetensors_file(header, std::string(data_bytes, 'x')));
  const std::string message = bad_input([&] { Checkpoint{directory.path()}; });
  EXPECT_THAT(message, HasSubstr("model.safetensors"));
  return message;
}

TEST(Checkpoint, ReadsASingleFile) {
  const TemporaryDirectory directory;
  directory.write("model.safetensors", f32_checkpoint({{"a", {2, 3}}, {"b", {4}}, {"scalar", {}}}));
  const Checkpoint checkpoint(directory.path());
  EXPECT_EQ(checkpoint.tensors().size(), 3U);
  EXPECT_TRUE(checkpoint.contains("a"));
  EXPECT_FALSE(checkpoint.contains("c"));
  const TensorView& b = checkpoint.tensor("b", {4});
  EXPECT_EQ(load_as_float(b.data, b.dtype, 0), 6.0F);
  EXPECT_EQ(load_as_float(b.data, b.dtype, 3), 9.0F);
}

TEST(Checkpoint, SaysWhereItsBytesLie) {
  const TemporaryDirectory directory;
  const std::string content = f32_checkpoint({{"a", {2, 3}}, {"b", {4}}});
  const auto file = directory.write("model.safetensors", content);
  const auto state = [&] {
    const Checkpoint checkpoint(directory.path());
    const TensorView& b = checkpoint.tensor("b", {4});
    EXPECT_EQ(b.source->path, file.string());
    EXPECT_EQ(b.data - b.source->data, static_cast<std::ptrdiff_t>(content.size()) - 16);
    return b.source->state;
  };
  const std::string first = state();
  EXPECT_EQ(state(), first);
  const auto written = std::filesystem::last_write_time(file);
  std::string states = first;
  const auto expect_new = [&](const char* what) {
    const std::string now = state();
    EXPECT_THAT(states, ::testing::Not(HasSubstr(now))) << what;
    states += "\n" + now;
  };
  // The clock of file systems ticks every few milliseconds.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  directory.write("model.safetensors", content);
  std::filesystem::last_write_time(file, written);
  expect_new("written in place, with the time of before");
  std::filesystem::rename(directory.write("other", content), file);
  std::filesystem::last_write_time(file, written);
  expect_new("another file of this name");
}

TEST(Checkpoint, ReadsAllThreeTypes) {
  const TemporaryDirectory directory;
  directory.write("model.safetensors", safetensors_file(R"({"__metadata__":{"format":"pt"},
      "f32":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
      "f16":{"dtype":"F16","shape":[1],"data_offsets":[4,6]},
      "bf16":{"dtype":"BF16","shape":[1],"data_offsets":[6,8]},
      "mask":{"dtype":"BOOL","shape":[1],"data_offsets":[8,9]}})",
                                                        std::string("\x00\x00\x80\x3f\x00\x3c\x80\x3f\x01", 9)));
  const Checkpoint checkpoint(directory.path());
  for (const char* name : {"f32", "f16", "bf16"}) {
    const TensorView& one = checkpoint.tensor(name, {1});
    EXPECT_EQ(load_as_float(one.data, one.dtype, 0), 1.0F) << name;
  }
  EXPECT_FALSE(checkpoint.contains("mask")) << "a type that is no weight is left alone";
}

TEST(Checkpoint, ReadsShards) {
  const TemporaryDirectory directory;
  directory.write("one.safetensors", f32_checkpoint({{"a", {2}}}));
  directory.write("two.safetensors", f32_checkpoint({{"b", {3}}}));
  directory.write("model.safetensors.index.json",
                  R"({"metadata":{},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const Checkpoint checkpoint(directory.path());
  EXPECT_EQ(checkpoint.tensor("b", {3}).shape, std::vector<std::int64_t>{3});
}

TEST(Checkpoint, NamesWhatIsMissing) {
  const TemporaryDirectory directory;
  EXPECT_THAT(bad_input([&] { Checkpoint{directory.path()}; }), HasSubstr("neither model.safetensors nor"));
  directory.write("model.safetensors", f32_checkpoint({{"a", {2, 3}}}));
  const Checkpoint checkpoint(directory.path());
  EXPECT_THAT(bad_input([&] { checkpoint.tensor("b", {1}); }), HasSubstr("b: found no such tensor"));
  EXPECT_THAT(bad_input([&] { checkpoint.tensor("a", {3, 2}); }), HasSubstr("found shape [2, 3], expected [3, 2]"));
}

TEST(Checkpoint, RefusesBrokenFiles) {
  const TemporaryDirectory directory;
  const auto open = [&](std::string_view content) {
    directory.write("model.safetensors", content);
    return bad_input([&] { Checkpoint{directory.path()}; });
  };
  EXPECT_THAT(open(""), HasSubstr("an empty file"));
  EXPECT_THAT(open("1234567"), HasSubstr("a file of 7 bytes"));
  EXPECT_THAT(open("\xff\xff\xff\xff\xff\xff\xff\xff{}"), HasSubstr("declared length of 18446744073709551615"));
  EXPECT_THAT(open(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("declared length of 3 bytes, expected at most 2"));
  const std::string whole = f32_checkpoint({{"a", {2, 3}}});
  EXPECT_THAT(open(std::string_view(whole).substr(0, whole.size() - 1)), HasSubstr("[0, 24]"));
  EXPECT_THAT(open(whole + "x"), HasSubstr("24 bytes, expected 25"));
  std::filesystem::remove(directory.path() / "model.safetensors");
  std::filesystem::create_directory(directory.path() / "model.safetensors");
  EXPECT_THAT(bad_input([&] { Checkpoint{directory.path()}; }), HasSubstr("directory"));
}

TEST(Checkpoint, RefusesAHeaderLongerThanTheFormatAllows) {
  // A sparse file: 100 MB + 1 of header that is never read.
  const TemporaryDirectory directory;
  constexpr std::uint64_t kLength = 100'000'001;
  std::string prefix(8, '\0');
  std::memcpy(prefix.data(), &kLength, sizeof(kLength));
  const std::filesystem::path file = directory.write("model.safetensors", prefix);
  std::filesystem::resize_file(file, 8 + kLength);
  EXPECT_THAT(bad_input([&] { Checkpoint{directory.path()}; }), HasSubstr("expected at most 100000000"));
}

TEST(Checkpoint, RefusesBadHeaders) {
  EXPECT_THAT(refused("{", 0), HasSubstr("broken JSON"));
  EXPECT_THAT(refused("[1]", 0), HasSubstr("no object"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[1]}})", 4), HasSubstr("a: found an incomplete entry"));
  EXPECT_THAT(refused(R"({"a":7})", 0), HasSubstr("incomplete"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F7","shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("dtype F7"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("unsigned"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4), HasSubstr("unsigned"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4), HasSubstr("unsigned"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
              HasSubstr("found 4 bytes, expected 8"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
              HasSubstr("data_offsets [4, 0]"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 8), HasSubstr("incomplete"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4), HasSubstr("within the 4 bytes"));
}

TEST(Checkpoint, RefusesShapesThatOverflow) {
  // 2^32 x 2^32 is 0 in 64 bits, and so is 2^62 x 4 bytes.
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
              HasSubstr("overflows"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0),
              HasSubstr("overflows"));
}

TEST(Checkpoint, RefusesOverlapsHolesAndDuplicates) {
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                      12),
              HasSubstr("overlaps"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                      12),
              HasSubstr("bytes of no tensor"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                      4),
              HasSubstr("a: found the name twice"));
}

TEST(Checkpoint, RefusesBadIndexes) {
  const TemporaryDirectory directory;
  directory.write("one.safetensors", f32_checkpoint({{"a", {2}}}));
  directory.write("two.safetensors", f32_checkpoint({{"a", {2}}, {"b", {1}}}));
  const auto open = [&](const std::string& index) {
    directory.write("model.safetensors.index.json", index);
    return bad_input([&] { Checkpoint{directory.path()}; });
  };
  EXPECT_THAT(open("{"), HasSubstr("broken JSON"));
  EXPECT_THAT(open("{}"), HasSubstr("weight_map"));
  EXPECT_THAT(open(R"({"weight_map":{"a":1}})"), HasSubstr("no string"));
  EXPECT_THAT(open(R"({"weight_map":{"a":"absent.safetensors"}})"),
              HasSubstr("absent.safetensors: found No such file"));
  EXPECT_THAT(open(R"({"weight_map":{"c":"one.safetensors"}})"),
              HasSubstr("c: found no such tensor in one.safetensors"));
  EXPECT_THAT(open(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"),
              HasSubstr("another file has too"));
  for (const std::string name : {"../one.safetensors", "/etc/hostname", "", "..", "sub/one.safetensors", "..\\\\one"}) {
    EXPECT_THAT(open(R"({"weight_map":{"a":")" + name + "\"}}"), HasSubstr("a file name inside the directory")) << name;
  }
}

/// Whatever bytes a file has, opening it either works or is kBadInput; run under ASan this shows that nothing outside the file is
/// read. A file that opens must have tensors inside it.
TEST(Checkpoint, SurvivesMutatedFiles) {
  const TemporaryDirectory directory;
  const std::string whole = f32_checkpoint({{"a", {2, 3}}, {"b", {4}}});
  std::mt19937 random(11);
  const std::string interesting = "{}[],:\"0129-e.\\\x00\xff n";
  int opened = 0;
  int refused_files = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string file = whole;
    for (std::uint_fast32_t flips = random() % 3 + (i % 4 != 0 ? 1 : 0); flips > 0; --flips) {
      const std::size_t at = random() % (random() % 2 == 0 ? 8 + 120 : file.size());
      file[at] = random() % 2 == 0 ? static_cast<char>(random()) : interesting[random() % interesting.size()];
    }
    if (i % 4 == 0) {
      file.resize(random() % (file.size() + 1));
    }
    directory.write("model.safetensors", file);
    try {
      const Checkpoint checkpoint(directory.path());
      float sum = 0;
      for (const auto& [name, view] : checkpoint.tensors()) {
        std::int64_t elements = 1;
        for (const std::int64_t size : view.shape) {
          elements *= size;
        }
        for (std::int64_t e = 0; e < elements; ++e) {
          sum += load_as_float(view.data, view.dtype, e);
        }
      }
      ++opened;
      EXPECT_FALSE(sum == -1.0F);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
      ++refused_files;
    }
  }
  EXPECT_GT(opened, 50);
  EXPECT_GT(refused_files, 500);
}

}  // namespace
}  // namespace specdec
